"""The operator's settings, from its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

from sinkpipeline_operator.child.runconfig import Runtime
from sinkpipeline_operator.kube.selector import Selector

SPARK_VERSION = "4.1.1"
DRIVER_SERVICE_ACCOUNT = "sinkpipeline-driver"


@dataclass(frozen=True, kw_only=True)
class Settings:
    runtime: Runtime
    namespaces: tuple[str, ...] = ()
    """Those that are watched; none for all of them."""
    selector: Selector = field(default_factory=Selector)
    """The labels of the pipelines that are served."""
    kafka_access: bool = True
    """Whether the operator itself talks to Kafka: topics, and progress while no driver runs."""
    crd_upgrade: bool = True
    """Whether a CustomResourceDefinition of an older release is replaced, or only told of."""
    host: str = "0.0.0.0"  # noqa: S104 - of a pod
    port: int = 8080
    resync_s: float = 60.0
    """After that long every pipeline is looked at again, whatever happened; of one at rest, only its Secrets."""
    at_rest_s: float = 3600.0
    """After that long also one at rest is: its driver answers, and nothing was told of it."""
    max_concurrent_restarts: int = 10
    """How many drivers are restarted at once for another image or Secret, which many pipelines may share."""
    poll_s: float = 5.0
    """How often a driver that runs is asked for its status."""
    progress_deadline_s: float = 600.0
    """For how long a driver may make no progress while records wait, before it counts as unresponsive."""
    start_deadline_s: float = 300.0
    """For how long a driver or an executor may wait for its start before a person is told to look."""
    log_level: str = "INFO"


def parse(arguments: Sequence[str]) -> Settings:
    """Reads the command line; exits with 2 where it is wrong."""
    found = _parser().parse_args(arguments)
    host, _, port = found.listen.rpartition(":")
    if not host or not port.isdigit():
        _parser().error(f"--listen {found.listen}: use HOST:PORT")
    return Settings(
        runtime=Runtime(
            image=found.image,
            spark_version=found.spark_version,
            service_account=found.driver_service_account,
            image_pull_policy=found.image_pull_policy,
            open_metrics=found.open_driver_metrics,
            log_json=found.log_format == "json",
        ),
        namespaces=tuple(dict.fromkeys(found.namespace)),
        selector=found.selector,
        kafka_access=found.kafka_access,
        crd_upgrade=found.crd_upgrade,
        host=host.strip("[]"),
        port=int(port),
        resync_s=found.resync,
        at_rest_s=found.resync_at_rest,
        max_concurrent_restarts=found.max_concurrent_restarts,
        poll_s=found.poll,
        progress_deadline_s=found.progress_deadline,
        start_deadline_s=found.start_deadline,
        log_level=found.log_level,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sinkpipeline_operator",
        description="Runs SinkPipelines. The API server is the one of KUBECONFIG, or the one of the pod.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--image", required=True, metavar="REF", help="the image of drivers and executors")
    add("--image-pull-policy", default="IfNotPresent", choices=["Always", "IfNotPresent", "Never"])
    add("--spark-version", default=SPARK_VERSION, help="the Spark of that image")
    add(
        "--driver-service-account",
        default=DRIVER_SERVICE_ACCOUNT,
        metavar="NAME",
        help="the ServiceAccount of the drivers' pods",
    )
    add(
        "--namespace",
        action="append",
        default=[],
        metavar="NS",
        help="watch this namespace; repeatable; default: all namespaces",
    )
    add(
        "--selector",
        type=_selector,
        default=Selector(),
        metavar="LABELS",
        help="serve only pipelines with these labels, such as shard=a or shard!=a",
    )
    add(
        "--kafka-access",
        default=True,
        action=argparse.BooleanOptionalAction,
        help="look at topics and progress in Kafka while no driver runs; otherwise only drivers do",
    )
    add(
        "--crd-upgrade",
        default=True,
        action=argparse.BooleanOptionalAction,
        help="replace a CustomResourceDefinition of an older release; otherwise wait until somebody does",
    )
    add(
        "--open-driver-metrics",
        action="store_true",
        help="drivers answer /metrics without a token, from their next start on",
    )
    add("--listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="where /healthz, /readyz and /metrics are served")
    add(
        "--resync",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="look at every pipeline at least once in this time",
    )
    add(
        "--resync-at-rest",
        type=_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="of a pipeline whose driver answers, read everything once in this time, and its Secrets at each resync",
    )
    add(
        "--max-concurrent-restarts",
        type=_count,
        default=10,
        metavar="COUNT",
        help="for another image or Secret, restart at most this many drivers at once",
    )
    add(
        "--poll",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="ask a running driver for its status once in this time",
    )
    add(
        "--progress-deadline",
        type=_seconds,
        default=600.0,
        metavar="SECONDS",
        help="report a driver as DriverUnresponsive if it makes no progress for this long while records wait",
    )
    add(
        "--start-deadline",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="report a pipeline as Stalled if its driver or an executor has not started after this long",
    )
    add(
        "--log-format",
        default="text",
        choices=["text", "json"],
        help="the log format of the operator, and of drivers from their next start on",
    )
    add("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return parser


def _selector(text: str) -> Selector:
    try:
        return Selector.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600.0:  # noqa: PLR2004 - said in the message
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 3600 seconds")
    return seconds
