"""What the images hold, by their Dockerfiles, and what the entry point of drivers and executors starts."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.spark.archive import Archive
from sinkpipeline_operator.child import builder, kubeflow
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
OPERATOR, SPARK = ROOT / "operator" / "Dockerfile", ROOT / "spark_app" / "Dockerfile"
ENTRY_POINT = ROOT / "spark_app" / "entrypoint.sh"
BOTH = pytest.mark.parametrize("dockerfile", [OPERATOR, SPARK], ids=["operator", "spark"])

# --- Dockerfiles ---


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    lines = [line for line in dockerfile.read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def stages(dockerfile: Path) -> dict[str, list[tuple[str, str]]]:
    """The instructions of each by its name; the last one has none."""
    found: dict[str, list[tuple[str, str]]] = {}
    stage = "(before the first)"
    for name, rest in instructions(dockerfile):
        if name == "FROM":
            stage = rest.partition(" AS ")[2]
        found.setdefault(stage, []).append((name, rest))
    return found


def built_upon(dockerfile: Path, stage: str = "") -> list[tuple[str, str]]:
    """What makes the image of a stage: of stages that it is built upon, and its own."""
    found = stages(dockerfile)
    before = found[stage][0][1].partition(" AS ")[0]
    return [*(built_upon(dockerfile, before) if before in found else []), *found[stage]]


def last_stage(dockerfile: Path) -> list[tuple[str, str]]:
    return built_upon(dockerfile)


def environment(dockerfile: Path) -> dict[str, str]:
    given = " ".join(rest for name, rest in last_stage(dockerfile) if name == "ENV")
    return dict(pair.split("=", 1) for pair in shlex.split(given))


@BOTH
def test_what_is_copied_is_there_and_not_ignored(dockerfile: Path) -> None:
    ignored, *kept = Path(f"{dockerfile}.dockerignore").read_text().split()
    assert ignored == "*"
    copied = [rest.split()[:-1] for name, rest in instructions(dockerfile) if name == "COPY" and "--from" not in rest]
    for source in (each for sources in copied for each in sources):
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, f"{one[1:]}*") for one in kept if one.startswith("!")), source


@BOTH
def test_the_user_is_a_number_and_not_root(dockerfile: Path) -> None:
    [user] = [rest for name, rest in last_stage(dockerfile) if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_operator_is_started_without_spark() -> None:
    assert ("ENTRYPOINT", '["python", "-m", "sinkpipeline_operator"]') in last_stage(OPERATOR)
    assert "spark]" not in " ".join(rest for _, rest in instructions(OPERATOR))


def test_the_image_is_what_the_child_asks_for() -> None:
    stage = last_stage(SPARK)
    assert ("USER", f"{builder._USER}:{builder._USER}") in stage
    assert ("COPY", f"spark_app/main.py {kubeflow.MAIN.removeprefix('local://')}") in stage
    assert ("WORKDIR", mount_path("work")) in stage


def mount_path(volume: str) -> str:
    path: str = builder._mount({"name": volume})["mountPath"]
    return path


def test_the_entry_point_is_in_the_image() -> None:
    stage = last_stage(SPARK)
    [target] = [rest.split()[1] for name, rest in stage if rest.startswith("spark_app/entrypoint.sh ")]
    assert ("ENTRYPOINT", f'["{target}"]') in stage
    assert os.access(ENTRY_POINT, os.X_OK)


def test_the_programs_of_the_entry_point_are_in_the_image() -> None:
    installed = next(rest for name, rest in last_stage(SPARK) if name == "RUN" and "apt-get install" in rest)
    assert {"tini", "openjdk-17-jre-headless"} <= set(installed.split())
    assert "libnss-unknown" in installed.split(), "Hadoop asks for the name of a user that may have none"
    assert environment(SPARK)["PATH"].startswith("/opt/venv/bin:")


def test_the_archive_of_classes_is_of_the_images_own_java_and_jars() -> None:
    """Made when both are there, at the path where drivers look for it, and as a user who may write there."""
    runtime, training = stages(SPARK)["runtime"], stages(SPARK)["training"]
    assert any("openjdk-17-jre-headless" in rest for _, rest in runtime)
    assert ("COPY", "--from=libraries /opt/venv /opt/venv") in runtime
    home = environment(SPARK)["SPARK_HOME"]
    assert "USER" not in {name for name, _ in built_upon(SPARK, "training")}
    assert training[0] == ("FROM", "runtime AS training")
    assert training[-1] == ("RUN", "python -m sinkpipeline.spark.archive_making")
    assert ("ARG", "TRAINING=training") in instructions(SPARK)
    assert stages(SPARK)["trained"] == [("FROM", "${TRAINING} AS trained")]
    archive = str(Archive(Path(home)).directory)
    assert stages(SPARK)[""][:2] == [("FROM", "runtime"), ("COPY", f"--from=trained {archive} {archive}")]


@BOTH
def test_an_edit_of_our_code_leaves_the_layers_of_libraries_as_they_are(dockerfile: Path) -> None:
    """Ours is packed beside them, copied over them last, and installed from nowhere else."""
    ours = {"spark_app/sinkpipeline", "operator"}
    by_stage = stages(dockerfile)
    for name, own in by_stage.items():
        copied = {word for kind, rest in own if kind == "COPY" for word in rest.split()[:-1]}
        assert name == "code" or not ours & copied, name
    image = last_stage(dockerfile)
    libraries = image.index(("COPY", "--from=libraries /opt/venv /opt/venv"))
    assert ("COPY", "--from=code /opt/code /opt/venv") in image[libraries + 1 :]
    packed = next(rest for kind, rest in by_stage["code"] if kind == "RUN")
    assert "--no-build-isolation" in packed
    assert "--no-index" in packed


def on_top() -> list[list[tuple[str, str]]]:
    """The Dockerfiles of docs/install.md."""
    page = (ROOT / "docs" / "install.md").read_text()
    texts = re.findall(r"^```dockerfile\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [[(name, rest) for name, _, rest in (line.partition(" ") for line in each.splitlines())] for each in texts]


def test_an_image_on_top_is_like_ours() -> None:
    """Jars are where Spark looks, packages in the Python that runs, and the user is the one that our image has."""
    env, [user] = environment(SPARK), [rest for name, rest in last_stage(SPARK) if name == "USER"]
    assert on_top()
    for found in on_top():
        assert found[0][1].startswith("registry.example.com/sinkpipeline-spark:")
        copied = [rest.split()[-1] for name, rest in found if name == "COPY"]
        assert copied == [f"{env['SPARK_HOME']}/jars/"]
        assert found[-1] == ("USER", user)
        for packages in (rest for name, rest in found if name == "RUN"):
            # There is no pip, and there stays none.
            assert packages.startswith("python -m ensurepip && python -m pip install ")
            assert packages.endswith(" && python -m pip uninstall --yes pip setuptools")


# --- the entry point ---

TELL = """\
#!{python}
import json, os, pathlib, signal, sys
told = {{"argv": sys.argv, "pid": os.getpid(), "env": dict(os.environ)}}
if "--until-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(17))
path = pathlib.Path(os.environ["TOLD"])
path.with_suffix(".part").write_text(json.dumps(told))
path.with_suffix(".part").rename(path)
while "--until-sigterm" in sys.argv:
    signal.pause()
"""
TINI = """\
#!/bin/sh
[ "$1 $2" = "-s --" ] || exit 99
shift 2
TINI=yes exec "$@"
"""


class Image:
    """What stands on the PATH of the image; each program tells how it was started."""

    def __init__(self, directory: Path) -> None:
        self.programs = directory / "bin"
        self.programs.mkdir()
        for name, text in {"python": TELL, "java": TELL, "tini": TINI}.items():
            program = self.programs / name
            program.write_text(text.format(python=sys.executable) if text is TELL else text)
            program.chmod(0o755)
        self.main = directory / "main.py"
        self.main.touch()
        self.told = directory / "told"
        self.home = directory / "spark"

    def start(self, arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        given = {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "TOLD": str(self.told),
            "SPARK_HOME": str(self.home),
        }
        return subprocess.Popen(
            [str(ENTRY_POINT), *arguments], env=given | env, cwd=self.programs, stderr=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, **env: str) -> Any:
        """What the program tells that was started in the end."""
        with self.start(arguments, env) as process:
            _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said
        told = json.loads(self.told.read_text())
        assert told["pid"] == process.pid, "a shell between would keep signals to itself"
        return told

    def refusal(self, *arguments: str, **env: str) -> str:
        with self.start(arguments, env) as process:
            _, said = process.communicate(timeout=30)
        assert process.returncode not in (0, None)
        assert not self.told.exists()
        return said

    def driver(self, *arguments: str) -> list[str]:
        """As DriverCommandFeatureStep of Spark has it."""
        conf = ("--properties-file", "/opt/spark/conf/spark.properties")
        return ["driver", *conf, "--class", "org.apache.spark.deploy.PythonRunner", *arguments]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


POD = {"SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3", "SPARK_CONF_DIR": "/opt/spark/conf"}


def test_a_driver_is_python_with_the_arguments_of_the_child(image: Image) -> None:
    arguments = ["--config", "/etc/a b.json", "--config-hash", "$(rm)", "--class", "of the application"]
    told = image.run(*image.driver(f"local://{image.main}", *arguments), **POD)
    assert told["argv"] == [str(image.programs / "python"), str(image.main), *arguments]
    assert told["env"]["TINI"] == "yes"


def test_the_drivers_spark_is_configured_as_spark_submit_would(image: Image) -> None:
    told = image.run(*image.driver(f"local://{image.main}"), **POD)
    # As pyspark splits it.
    assert shlex.split(told["env"]["PYSPARK_SUBMIT_ARGS"]) == [
        *("--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.1.2.3"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.1.2.3"),
        *("--properties-file", "/opt/spark/conf/spark.properties"),
        "pyspark-shell",
    ]


def test_other_options_of_spark_submit_are_kept(image: Image) -> None:
    given = ["driver", "--proxy-user", "o'neil; x", "--class", "c", str(image.main)]
    submit = shlex.split(image.run(*given, **POD)["env"]["PYSPARK_SUBMIT_ARGS"])
    assert submit[-3:] == ["--proxy-user", "o'neil; x", "pyspark-shell"]
    assert "c" not in submit


def test_sigterm_reaches_python(image: Image) -> None:
    with image.start(image.driver(f"local://{image.main}", "--until-sigterm"), POD) as process:
        wait_until(image.told.exists, "the driver is there")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 17


def test_a_driver_without_what_it_needs_is_refused(image: Image) -> None:
    assert "SPARK_DRIVER_BIND_ADDRESS" in image.refusal(*image.driver(f"local://{image.main}"))
    assert "no main application file" in image.refusal(*image.driver(), **POD)
    assert "/nowhere.py is not in this image" in image.refusal(*image.driver("local:///nowhere.py"), **POD)
    assert "--name has no value" in image.refusal("driver", "--name", **POD)
    assert "say driver, executor" in image.refusal()


EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@orders:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-0f",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "orders-exec-3",
}
BACKEND = [
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    *("--driver-url", "spark://CoarseGrainedScheduler@orders:7078"),
    *("--executor-id", "3"),
    *("--cores", "1"),
    *("--app-id", "spark-0f"),
    *("--hostname", "10.1.2.4"),
    *("--resourceProfileId", "0"),
    *("--podName", "orders-exec-3"),
]


def test_an_executor_is_the_backend_of_spark(image: Image) -> None:
    told = image.run("executor", **EXECUTOR)
    home = image.home
    classpath = f"{home}/conf:{home}/jars/*:{image.programs}"
    assert told["argv"] == [str(image.programs / "java"), "-Xms1024m", "-Xmx1024m", "-cp", classpath, *BACKEND]
    assert told["env"]["TINI"] == "yes"


def test_an_executor_has_its_options_in_order_and_its_classpath(image: Image) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} and more" for number in range(11)}
    paths = {
        "SPARK_CONF_DIR": "/conf",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_CLASSPATH": "/user.jar",
        "SPARK_EXTRA_CLASSPATH": "/extra",
        "SPARK_DIST_CLASSPATH": "/dist",
    }
    argv = image.run("executor", **EXECUTOR, **options, **paths)["argv"]
    assert argv[1:12] == [f"-Dn={number} and more" for number in range(11)]
    classpath = argv[argv.index("-cp") + 1]
    assert classpath == f"/conf:/hadoop:/user.jar:{image.home}/jars/*:/extra:{image.programs}:/dist"


def test_an_executor_has_the_java_of_java_home(image: Image) -> None:
    java = image.programs.parent / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    (image.programs / "java").rename(java)
    assert image.run("executor", **EXECUTOR, JAVA_HOME=str(java.parents[1]))["argv"][0] == str(java)


def test_an_executor_has_the_archive_of_classes_and_its_class_path_first(image: Image) -> None:
    archive = Archive(image.home)
    archive.directory.mkdir(parents=True)
    archive.classes.touch()
    argv = image.run("executor", **EXECUTOR, SPARK_JAVA_OPT_0="-Da=b c")["argv"]
    options = archive.options()
    assert argv[1 : 2 + len(options)] == [*options, "-Da=b c"]
    classpath = argv[argv.index("-cp") + 1]
    assert classpath == f"{archive.class_path}:{image.home}/conf:{image.home}/jars/*:{image.programs}"


@pytest.mark.parametrize(
    "own", [{"SPARK_CLASSPATH": "/own.jar"}, {"SPARK_JAVA_OPT_0": "-Da=b", "SPARK_JAVA_OPT_1": "-Xshare:off"}]
)
def test_an_executor_with_a_class_path_or_sharing_of_its_own_has_no_archive(
    image: Image, own: Mapping[str, str]
) -> None:
    without = image.run("executor", **EXECUTOR, **own)["argv"]
    archive = Archive(image.home)
    archive.directory.mkdir(parents=True)
    archive.classes.touch()
    assert image.run("executor", **EXECUTOR, **own)["argv"] == without


@pytest.mark.parametrize("missing", EXECUTOR)
def test_an_executor_without_what_it_needs_is_refused(image: Image, missing: str) -> None:
    given = {name: value for name, value in EXECUTOR.items() if name != missing}
    assert missing in image.refusal("executor", **given)


def test_any_other_command_is_run_as_it_stands(image: Image) -> None:
    assert image.run("python", "-m", "anything", "a b")["argv"][1:] == ["-m", "anything", "a b"]
