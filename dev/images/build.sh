#!/usr/bin/env bash
# Builds the operator's image and the one of drivers and executors, with docker, podman or buildah: whichever works here.
#
#   REGISTRY=registry.example.com TAG=0.1.0 dev/images/build.sh [--push]
#
# SPARK_VERSION is another Spark than that of requirements.lock (4.0.4; then say so to the chart: spark.version).
# BUILDER names the tool to take; PYTHON_IMAGE and MAVEN_IMAGE other base images (Debian with a Python 3.11, and Maven);
# TRAINING an image that has the archive of Spark's classes already; BUILD_OPTIONS what else the tool is to be given, such
# as "--network host".
set -euo pipefail
cd "$(dirname "$0")/../.."

REGISTRY=${REGISTRY:-localhost}
TAG=${TAG:-$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' charts/sinkpipeline-operator/Chart.yaml)}

fail() {
  printf 'images: %s\n' "$*" >&2
  exit 1
}

# A docker without its daemon is only a client.
builder() {
  if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    echo docker
  elif command -v podman >/dev/null; then
    echo podman
  elif command -v buildah >/dev/null; then
    echo buildah
  else
    fail "there is no docker that runs, no podman and no buildah: install one of them (Debian: apt install buildah)"
  fi
}

BUILDER=${BUILDER:-$(builder)}
arguments=()
for name in PYTHON_IMAGE MAVEN_IMAGE TRAINING SPARK_VERSION; do
  [[ -z ${!name:-} ]] || arguments+=(--build-arg "$name=${!name}")
done
read -r -a options <<<"${BUILD_OPTIONS:-}"

for image in operator spark; do
  directory=operator
  [[ $image == operator ]] || directory=spark_app
  name=$REGISTRY/sinkpipeline-$image:$TAG
  # shellcheck disable=SC2086 # BUILDER may bring options of its own
  $BUILDER build ${options[@]+"${options[@]}"} ${arguments[@]+"${arguments[@]}"} --file "$directory/Dockerfile" --tag "$name" .
  # shellcheck disable=SC2086
  [[ ${1:-} != --push ]] || $BUILDER push "$name"
done
