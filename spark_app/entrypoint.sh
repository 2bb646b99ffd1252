#!/usr/bin/env bash
# What Spark on Kubernetes starts as `driver` or `executor`, with the arguments and the environment that Spark 4.0 and 4.1 give
# (DriverCommandFeatureStep, BasicDriverFeatureStep, BasicExecutorFeatureStep); anything else is run as it stands.
#
# A driver is Python, which starts the JVM. With the entry point of Spark's own images it is the other way round, and
# SIGTERM ends the JVM in the middle of a batch before Python hears of it (docs/driver.md).
set -euo pipefail

fail() {
  printf 'entrypoint: %s\n' "$*" >&2
  exit 2
}

# tini: a process with the id 1 ignores signals that it doesn't handle, as Python's are until it has imported ours.
start() { exec tini -s -- "$@"; }

# driver [SPARK_SUBMIT_OPTION VALUE]... MAIN [ARGUMENT...]
driver() {
  local address=${SPARK_DRIVER_BIND_ADDRESS:?is the address of the pod, and Spark sets it}
  local submit=(
    --deploy-mode client
    --conf "spark.driver.bindAddress=$address"
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$address"
  )
  while [[ ${1-} == --* ]]; do
    (($# >= 2)) || fail "$1 has no value"
    # The class would be that which starts Python.
    [[ $1 == --class ]] || submit+=("$1" "$2")
    shift 2
  done
  (($# >= 1)) || fail "driver: no main application file"
  local main=${1#local://}
  shift
  [[ -f $main ]] || fail "$main is not in this image"
  # pyspark splits it as a shell would, and starts spark-submit with it.
  PYSPARK_SUBMIT_ARGS="$(printf '%q ' "${submit[@]}")pyspark-shell"
  export PYSPARK_SUBMIT_ARGS
  start python "$main" "$@"
}

executor() {
  local options=() number name
  for ((number = 0; ; number++)); do
    name=SPARK_JAVA_OPT_$number
    [[ -n ${!name+set} ]] || break
    options+=("${!name}")
  done
  local classpath=${SPARK_CONF_DIR:-$SPARK_HOME/conf}
  classpath+=${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}
  classpath+=${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}
  classpath+=:$SPARK_HOME/jars/*
  classpath+=${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}
  classpath+=:$PWD
  classpath+=${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}
  # The archive of Spark's classes, for a class path that begins as its own did (sinkpipeline/spark/archive.py).
  local archive=$SPARK_HOME/sinkpipeline own='-XX:SharedArchiveFile|-XX:ArchiveClassesAtExit|-Xshare:' sharing=()
  if [[ -f $archive/classes.jsa && -z ${SPARK_CLASSPATH-} && ! ${options[*]-} =~ $own ]]; then
    sharing=("-XX:SharedArchiveFile=$archive/classes.jsa" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off)
    classpath=$archive/classpath.jar:$classpath
  fi
  start "${JAVA_HOME:+$JAVA_HOME/bin/}java" \
    ${sharing[@]+"${sharing[@]}"} \
    ${options[@]+"${options[@]}"} \
    "-Xms$SPARK_EXECUTOR_MEMORY" \
    "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$classpath" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
}

case ${1-} in
driver)
  shift
  driver "$@"
  ;;
executor) executor ;;
"") fail "say driver, executor, or a command" ;;
*) exec "$@" ;;
esac
