"""The command of a Job's pod: what a `SinkPipelineAction` asks for, shown or carried out.

    python -m sinkpipeline.cli.pod.asked --config FILE --order FILE --secrets-dir DIR --config-maps-dir DIR
        --termination-log FILE

The order is the operator's, as JSON: `do` (preview, or carryOut), the action's `spec`, `created` in Unix milliseconds,
`owner` (cluster and name), for a reset `resume` as the driver gets it, and for carrying out `resolved`, as the preview
had it. The answer goes to the termination log: `preview`, `done`, or `error`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from sinkpipeline.cli.dlq.contents import read_contents
from sinkpipeline.cli.dlq.purging import UpTo, bounds_of, delete_records
from sinkpipeline.cli.dlq.purging import told as told_of_purge
from sinkpipeline.cli.dlq.redriving import (
    Done,
    check_ids,
    deliver_letters,
    foreseen,
    return_letters,
    settings_of,
)
from sinkpipeline.cli.dlq.redriving import told as told_of_redrive
from sinkpipeline.cli.dlq.selection import CONNECT_S, Filters, find_topic, missing, with_letters
from sinkpipeline.cli.endings import told
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.pod.pod_log import pod_log, tell, tell_error
from sinkpipeline.cli.pod.termination import DEFAULT
from sinkpipeline.cli.say import say
from sinkpipeline.cli.signals import stop_on_signal
from sinkpipeline.core.asked import Preview, bounded, moment_of
from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline.core.manifest.action import SOURCE, ActionSpec, ActionType, LetterFilter
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.resume import parse as parse_resume
from sinkpipeline.core.status import timestamp
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.core.texts import shortened
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.kafka.return_to_source import check_returnable
from sinkpipeline.kafka.survey import Survey
from sinkpipeline.kinds import redrive_of
from sinkpipeline.kinds.asked_reset import AskedReset
from sinkpipeline.kinds.given import read_given
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks

_LOG = logging.getLogger("sinkpipeline.action")

PREVIEW, CARRY_OUT = "preview", "carryOut"
_LIMIT_BYTES = 4096
"""The kubelet reads no more of a termination log."""
_FILE = click.Path(path_type=Path, dir_okay=False)
_TELL_EVERY = 1000


@dataclass(frozen=True, kw_only=True)
class _Order:
    do: str
    spec: ActionSpec
    created: int
    owner: Owner
    resume: Mapping[str, Any] | None
    resolved: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> _Order:
        document = json.loads(path.read_text())
        return cls(
            do=document["do"],
            spec=ActionSpec.model_validate_json(json.dumps(document["spec"])),
            created=int(document["created"]),
            owner=Owner(cluster=document["owner"]["cluster"], name=document["owner"]["name"]),
            resume=document.get("resume"),
            resolved=document.get("resolved") or {},
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", required=True, type=_FILE, help="The manifest, with every default.")
@click.option("--order", required=True, type=_FILE, help="What is asked for; JSON.")
@click.option("--secrets-dir", type=click.Path(path_type=Path, file_okay=False), help="Holds <secret>/<key>.")
@click.option("--config-maps-dir", type=click.Path(path_type=Path, file_okay=False), help="Holds <name>/<key>.")
@click.option("--termination-log", type=_FILE, default=DEFAULT, show_default=True, help="Where the answer goes.")
def act(
    config: Path, order: Path, secrets_dir: Path | None, config_maps_dir: Path | None, termination_log: Path
) -> None:
    """Show or carry out what a SinkPipelineAction asks for."""
    try:
        answer = _answer(read_manifest(config), _Order.read(order), secrets_dir, config_maps_dir)
        _write(termination_log, answer)
    except BaseException as raised:  # noqa: BLE001 - whatever it is, it is told
        error = told(raised)
        _write(termination_log, {"error": error.to_dict()})
        tell_error(_LOG, error)
        sys.exit(error.reason.exit_code)


def _answer(
    pipeline: SinkPipeline, order: _Order, secrets_dir: Path | None, config_maps_dir: Path | None
) -> dict[str, Any]:
    if order.spec.action is ActionType.REDRIVE and order.spec.to != SOURCE:
        pipeline = read_given(pipeline, config_maps_dir)
    sinks = [replace(each, owner=order.owner) for each in resolve_sinks(pipeline, secrets_dir)]
    work = _WORK[order.spec.action](pipeline, sinks, order)
    if order.do == PREVIEW:
        preview = work.preview()
        tell(_LOG, preview.text)
        return {"preview": preview.to_dict()}
    done = work.carry_out()
    tell(_LOG, done)
    return {"done": done}


@dataclass(frozen=True)
class _Reset:
    pipeline: SinkPipeline
    sinks: Sequence[SinkSettings]
    order: _Order

    def preview(self) -> Preview:
        return self._asked.preview(self.order.spec.to or "")

    def carry_out(self) -> str:
        return self._asked.carry_out(self.order.resolved)

    @property
    def _asked(self) -> AskedReset:
        name = self.order.spec.sink
        resume = None if self.order.resume is None else parse_resume(dict(self.order.resume), self.pipeline.identity)
        memory = None if resume is None else resume.memories.get(name)
        return AskedReset(settings=next(each for each in self.sinks if each.id.sink == name), memory=memory)


@dataclass(frozen=True)
class _Redrive:
    pipeline: SinkPipeline
    sinks: Sequence[SinkSettings]
    order: _Order

    def preview(self) -> Preview:
        with closing(self._redrive()) as redrive:
            return self._preview(redrive)

    def _preview(self, redrive: Redrive) -> Preview:
        survey = redrive.survey()
        if survey is None:
            raise usage_invalid(missing(redrive.settings), "nothing is to be done")
        check_ids(survey, redrive.wanted.ids)
        where = "back to the source topic" if self._to_source else f"into {redrive.goes_into}"
        lines = [
            *told_of_redrive(survey),
            *foreseen(redrive, survey, to_source=self._to_source),
            f"each of them goes {where}, once; letters that come later are left",
        ]
        return Preview(
            text=bounded("\n".join(lines)),
            resolved={
                "topicId": survey.topic.id,
                "ends": [view.end for view in survey.partitions],
                "pending": survey.pending,
            },
        )

    def carry_out(self) -> str:
        with closing(self._redrive()) as redrive:
            return self._carry_out(redrive)

    def _carry_out(self, redrive: Redrive) -> str:
        ends = [int(each) for each in self.order.resolved["ends"]]
        survey = redrive.survey(ends)
        _check_same(redrive.settings, None if survey is None else survey.topic.id, self.order.resolved)
        assert survey is not None
        done = Done(survey)
        with stop_on_signal(redrive.stop):
            if survey.pending or survey.hidden:
                self._go(redrive, survey, ends, done)
            if redrive.stop.is_set():
                fact = f"stopped by a signal: {_counts(done.summary)}"
                raise SinkPipelineError(Reason.BATCH_FAILED, fact, "the next pod goes on where this one ended")
        before = self.order.resolved["pending"] - survey.pending
        return f"redrove: {_counts(done.summary)}{redriven_before(before)}"

    def _go(self, redrive: Redrive, survey: Survey, ends: Sequence[int], done: Done) -> None:
        if self._to_source:
            return_letters(redrive, survey, done, _show, ends)
        else:
            deliver_letters(self.pipeline, redrive, survey, None, done, _show)

    @property
    def _to_source(self) -> bool:
        return self.order.spec.to == SOURCE

    def _redrive(self) -> Redrive:
        [settings] = with_letters(self.sinks, self.order.spec.sink)
        if self._to_source:
            check_returnable(list(self.sinks))
        letters = self.order.spec.letters or LetterFilter()
        filters = Filters(
            stages=tuple(each.value for each in letters.stages),
            classes=tuple(each.value for each in letters.classes),
            since=_absolute(letters.since, self.order.created),
            until=_absolute(letters.until, self.order.created),
        )
        wanted = filters.wanted([settings], letters.ids)
        redrive = redrive_of(settings_of(self.sinks, settings), wanted, self.order.spec.rate)
        connect(redrive.admin, CONNECT_S)
        return redrive


@dataclass(frozen=True)
class _Purge:
    pipeline: SinkPipeline
    sinks: Sequence[SinkSettings]
    order: _Order

    def preview(self) -> Preview:
        [settings] = with_letters(self.sinks, self.order.spec.sink)
        up_to = self.order.spec.up_to
        assert up_to is not None
        topic = find_topic(settings)
        if topic is None:
            raise usage_invalid(missing(settings), "nothing is to be done")
        bound = UpTo(
            before=up_to.before_offsets,
            until=_absolute(up_to.until, self.order.created),
            redriven=up_to.redriven is True,
        )
        contents = read_contents(settings, topic, lenient=not bound.redriven)
        bounds = bounds_of(contents, bound)
        lines = [
            *told_of_purge(contents, bounds),
            *(f"{topic.name}-{at}: what stands before offset {end} is deleted" for at, end in sorted(bounds.items())),
        ]
        return Preview(
            text=bounded("\n".join(lines or [f"nothing of {topic.name} is to be deleted"])),
            resolved={"topicId": topic.id, "before": {str(at): offset for at, offset in sorted(bounds.items())}},
        )

    def carry_out(self) -> str:
        [settings] = with_letters(self.sinks, self.order.spec.sink)
        topic = find_topic(settings)
        _check_same(settings, None if topic is None else topic.id, self.order.resolved)
        assert topic is not None
        bounds = {int(at): int(offset) for at, offset in self.order.resolved["before"].items()}
        if bounds:
            delete_records(settings, topic.name, bounds)
        return f"deleted from {topic.name}: {len(bounds)} partitions were cut as they were shown"


_WORK: Mapping[ActionType, type[_Reset | _Redrive | _Purge]] = {
    ActionType.RESET: _Reset,
    ActionType.REDRIVE: _Redrive,
    ActionType.PURGE: _Purge,
}


def _check_same(settings: SinkSettings, topic_id: str | None, resolved: Mapping[str, Any]) -> None:
    if topic_id != resolved["topicId"]:
        raise SinkPipelineError(
            Reason.FRONTIER_MOVED,
            f"the dead-letter topic of {settings.id} was deleted or re-created since this was shown; nothing was done",
            "look at the new preview, and confirm its digest",
        )


def _absolute(text: str | None, created: int) -> str | None:
    at = moment_of(text, created)
    return None if at is None else timestamp(at)


def _counts(summary: Summary) -> str:
    return (
        f"{summary.delivered} delivered, {summary.returned} returned, {summary.filtered} filtered, "
        f"{summary.dead_lettered} dead-lettered again, {summary.repeated} repeated, {summary.kept} kept, "
        f"{summary.uncounted} uncounted, {summary.gone} gone, {summary.pending} pending"
    )


def redriven_before(letters: int) -> str:
    """Of letters that were pending in the preview, and were not when this pod began: an earlier one may have failed."""
    if letters <= 0:
        return ""
    return f"; {letters} more letters of the preview were redriven before this pod began"


def _show(summary: Summary) -> None:
    if summary.settled % _TELL_EVERY == 0:
        _LOG.info("redrove %d of %d letters", summary.settled, summary.settled + summary.pending)


def _write(path: Path, answer: Mapping[str, Any]) -> None:
    """Whole, whatever has to be cut for it."""
    for length in (2048, 1024, 512, 256, 64):
        words = json.dumps(_cut(answer, length), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        if len(words) <= _LIMIT_BYTES:
            break
    else:
        raise usage_invalid(
            "the preview has more partitions than a Job can report",
            "name fewer of them, or let the operator have access to Kafka (kafkaAccess)",
        )
    try:
        # Kubernetes mounts the very file: it is overwritten in place.
        file = os.open(path, os.O_WRONLY | os.O_TRUNC | (0 if path == DEFAULT else os.O_CREAT), 0o644)
        try:
            os.write(file, words)
        finally:
            os.close(file)
    except OSError as error:
        _LOG.error("the answer can't be written to %s: %s", path, error)


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, Mapping):
        return {key: each if key == "resolved" else _cut(each, length) for key, each in value.items()}
    return shortened(value, length) if isinstance(value, str) else value


def main() -> None:
    with pod_log():
        try:
            act.main(standalone_mode=False)
        except click.ClickException as error:
            say(error.format_message(), err=True)
            sys.exit(ExitCode.MANIFEST)


if __name__ == "__main__":
    main()
