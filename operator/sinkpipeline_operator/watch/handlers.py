"""The one place for kopf: it watches, and says which pipeline is to be looked at. Nothing is decided here.

Only `on.event` handlers: timers, daemons and change handlers would write finalizers and annotations into resources that
are not ours to decorate.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol

import kopf

from sinkpipeline_operator.child.builder import PIPELINE_LABEL
from sinkpipeline_operator.kube.client import ACTION, PIPELINE, POD, Access, Kind, Ref
from sinkpipeline_operator.kube.selector import Selector
from sinkpipeline_operator.watch.workqueue import WorkQueue

_NETWORK_S = 30
_BACKOFFS_S = (1, 1, 2, 3, 5, 8, 13, 21)
_BACKOFF_S = 30
_SILENCE_S = 600
"""A watch is begun anew after so long, whatever the server says: one that has died in silence ends so."""


def build(
    prepare: Callable[[], Awaitable[Coroutine[None, None, None]]],
    make_queue: Callable[[], WorkQueue],
    child: Kind,
    namespaces: tuple[str, ...],
    access: Callable[[], Access],
    selector: Selector,
) -> tuple[kopf.OperatorRegistry, kopf.OperatorSettings]:
    """What kopf runs: a registry of handlers around one work queue, which is made in kopf's own event loop.

    `prepare`: nothing is watched before it is through; what it gives goes on meanwhile. `access`: asked for whenever
    kopf logs in.
    """
    registry = kopf.OperatorRegistry()
    queue: WorkQueue | None = None
    tasks: list[asyncio.Task[None]] = []

    def touch(ref: Ref, version: str | None = None, generation: int | None = None) -> None:
        if queue is not None and version is not None:
            queue.tell(ref, version, generation)
        elif queue is not None:
            queue.touch(ref)

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        # Not kopf's own ways: in a pod they name the API server, and our client has its address. Where names can't be
        # resolved one of the two would work, and the other not.
        return connection(access())

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        nonlocal queue
        beside = await prepare()
        queue = make_queue()
        tasks.extend((_begun("work queue", queue.run()), _begun("look beside it", beside)))

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await _end(tasks)

    _follow(registry, child, touch)
    return registry, _settings(namespaces, child, selector)


class _Touch(Protocol):
    """Something happened to a pipeline; `version`: the resource is there in that one, and of that generation."""

    def __call__(self, ref: Ref, version: str | None = None, generation: int | None = None) -> None: ...


def _follow(registry: kopf.OperatorRegistry, child: Kind, touch: _Touch) -> None:
    """What may lead to something that has to be done."""

    @kopf.on.event(*_resource(PIPELINE), registry=registry)
    async def pipeline_changed(meta: kopf.Meta, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        # A status that was written here is told back.
        version = None if type == "DELETED" else str(meta["resourceVersion"])
        touch(Ref(str(meta["namespace"]), str(meta["name"])), version, meta.get("generation"))

    # With its pipeline, so that nothing happens to a sink twice at once.
    @kopf.on.event(*_resource(ACTION), registry=registry)
    async def action_changed(meta: kopf.Meta, spec: kopf.Spec, **_: Any) -> None:
        pipeline = spec.get("pipeline")
        if isinstance(pipeline, str):
            touch(Ref(str(meta["namespace"]), pipeline))

    @kopf.on.event(*_resource(child), registry=registry, labels={PIPELINE_LABEL: kopf.PRESENT})
    async def child_changed(meta: kopf.Meta, **_: Any) -> None:
        touch(_owner_of(meta))

    # Drivers and executors: either may wait for something that a person has to know.
    @kopf.on.event(*_resource(POD), registry=registry, labels={PIPELINE_LABEL: kopf.PRESENT})
    async def pod_changed(meta: kopf.Meta, **_: Any) -> None:
        touch(_owner_of(meta))


def run(registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: tuple[str, ...]) -> None:
    """Until SIGTERM or SIGINT."""
    kopf.run(
        registry=registry,
        settings=settings,
        # kopf would ask for the user's name otherwise, and end where the user has none, as in our image.
        identity=_identity(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def connection(access: Access) -> kopf.ConnectionInfo:
    """The same for kopf; it asks again once its token is refused."""
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.ca_path,
        insecure=not access.verify,
        scheme="Bearer" if access.token else None,
        token=access.token,
        certificate_path=access.certificate_path,
        private_key_path=access.key_path,
        proxy_url=access.proxy,
    )


class _Endless:
    """How long kopf waits before it asks again, each time that it asks anything.

    With its own list it gives up after a minute, and the whole process with it: for a namespace that goes, or whose
    RoleBinding a tenant has deleted, or while the API server has no etcd. All other namespaces would wait for that one.
    """

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_BACKOFFS_S, itertools.repeat(_BACKOFF_S))


def _identity() -> Any:
    """Of this process, for kopf's log; any user may run it, also one that no passwd entry names."""
    return f"{socket.gethostname()}/{os.getpid()}"


def _resource(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


def _owner_of(meta: Mapping[str, Any]) -> Ref:
    return Ref(str(meta["namespace"]), str(meta["labels"][PIPELINE_LABEL]))


def _settings(namespaces: tuple[str, ...], child: Kind, selector: Selector) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # By the API server: handlers filter only what has been read, and the pods of a whole cluster are many.
    for kind in (child, POD):
        settings.watching.label_selectors[_resource(kind)] = PIPELINE_LABEL
    if selector.requirements:
        settings.watching.label_selectors[_resource(PIPELINE)] = str(selector)
    # Our own events are named, so that a repetition is counted and not added.
    settings.posting.enabled = False
    settings.networking.error_backoffs = _Endless()
    settings.networking.connect_timeout = _NETWORK_S
    settings.networking.request_timeout = _NETWORK_S
    settings.watching.connect_timeout = _NETWORK_S
    settings.watching.server_timeout = _SILENCE_S
    settings.watching.client_timeout = _SILENCE_S + _NETWORK_S
    # With the rights of some namespaces nobody may list all of them, or the kinds of the cluster.
    settings.scanning.disabled = bool(namespaces)
    return settings


def _begun(name: str, what: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(what, name=name)
    task.add_done_callback(_tell_if_it_broke)
    return task


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Whatever still runs, kopf would wait for in vain."""
    for each in tasks:
        each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each


def _tell_if_it_broke(work: asyncio.Task[None]) -> None:
    if not work.cancelled() and work.exception() is not None:
        logging.getLogger("sinkpipeline.reconcile").critical("the %s ended", work.get_name(), exc_info=work.exception())
