#!/usr/bin/env bash
# The images of the local node, where neither Docker nor a registry is: base images from Debian's packages, the project's own
# two on them by dev/images/build.sh, Kubeflow's operator, and the pause image. OUT/layout has them, as an OCI image layout.
#
#   dev/images/local.sh PROGRAMS OUT     PROGRAMS has `pause` and `spark-operator` (dev/install.sh node)
#
# SPARK_VERSION is another Spark than that of requirements.lock, as for dev/images/build.sh.
#
# A step whose inputs did not change takes a moment. Needs root, buildah and debootstrap.
set -euo pipefail
programs=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
here=$PWD

TAG=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' ../../charts/sinkpipeline-operator/Chart.yaml)
KUBEFLOW=localhost/spark-operator:$(sed -n 's:^require github.com/kubeflow/spark-operator/v2 v::p' ../go/spark-operator/go.mod)
MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
PACKAGES=ca-certificates,python3,python3-venv,python3-pip,python-is-python3
# Its own storage: what other programs keep for containers stays as it is.
BUILDAH="buildah --root $out/storage --runroot $out/run"

say() { printf 'images: %s\n' "$*" >&2; }
has() { $BUILDAH inspect --type image "$1" >/dev/null 2>&1; }

# Packages are fetched as this machine fetches them: by its resolver, and trusting the authorities that it trusts.
volumes=(--volume /etc/resolv.conf:/etc/resolv.conf:ro)
authorities=/etc/ssl/certs/ca-certificates.crt
if [[ -f $authorities ]]; then
  # Not over the image's own file: Java's package would fail to install.
  printf '[global]\ncert = /etc/host-ca.pem\n' >"$out/pip.conf"
  volumes+=(--volume "$authorities:/etc/host-ca.pem:ro" --volume "$out/pip.conf:/etc/pip.conf:ro")
fi
java_authorities=/etc/ssl/certs/java/cacerts
maven_options=
if [[ -f $java_authorities ]]; then
  volumes+=(--volume "$java_authorities:/etc/host-cacerts:ro")
  maven_options="-Djavax.net.ssl.trustStore=/etc/host-cacerts -Djavax.net.ssl.trustStorePassword=changeit"
fi
options=(--isolation chroot --network host --layers "${volumes[@]}")

base() {
  has localhost/python:3.11 && return
  say "making a base image from Debian's packages: a minute"
  local container directory
  directory=$(mktemp -d "$out/.base.XXXXXX")
  debootstrap --variant=minbase --include=$PACKAGES bookworm "$directory" "$MIRROR" >"$out/debootstrap.log" 2>&1 ||
    { tail -20 "$out/debootstrap.log" >&2; return 1; }
  rm -rf "$directory"/var/cache/apt/archives/*.deb "$directory"/var/lib/apt/lists/*
  container=$($BUILDAH from scratch)
  $BUILDAH add -q "$container" "$directory" / >/dev/null
  $BUILDAH commit -q "$container" localhost/python:3.11 >/dev/null
  $BUILDAH rm "$container" >/dev/null
  rm -rf "$directory"
}

maven() {
  has localhost/maven:3 && return
  say "making an image with Maven: a minute"
  $BUILDAH build "${options[@]}" --tag localhost/maven:3 --file - "$here/kubeflow" <<DOCKERFILE
FROM localhost/python:3.11
RUN apt-get update && apt-get install --yes --no-install-recommends maven openjdk-17-jdk-headless && rm -rf /var/lib/apt/lists/*
ENV MAVEN_OPTS="$maven_options"
DOCKERFILE
}

pause() {
  has localhost/pause:1 && return
  local container
  container=$($BUILDAH from scratch)
  $BUILDAH copy -q "$container" "$programs/pause" /pause >/dev/null
  $BUILDAH config --entrypoint '["/pause"]' "$container"
  $BUILDAH commit -q "$container" localhost/pause:1 >/dev/null
  $BUILDAH rm "$container" >/dev/null
}

spark_app=("${options[@]}" --build-arg PYTHON_IMAGE=localhost/python:3.11 --build-arg MAVEN_IMAGE=localhost/maven:3
  --file ../../spark_app/Dockerfile)
[[ -z ${SPARK_VERSION:-} ]] || spark_app+=(--build-arg "SPARK_VERSION=$SPARK_VERSION")

# Everything of Spark's image but our code, and the archive of its classes. Making that one takes as long as all the rest
# after an edit, and what it holds hangs on the modules that drive Spark: of the others it may be older.
runtime() {
  local key
  $BUILDAH build "${spark_app[@]}" --target runtime --tag localhost/sinkpipeline-runtime:1 ../..
  key=$({ image_id localhost/sinkpipeline-runtime:1; cat ../../spark_app/sinkpipeline/spark/*.py; } | sha256sum | cut -c1-12)
  TRAINING=localhost/sinkpipeline-training:$key
  has "$TRAINING" && return
  $BUILDAH images --format '{{.Name}}:{{.Tag}}' | { grep '^localhost/sinkpipeline-training:' || true; } |
    xargs -r $BUILDAH rmi >/dev/null
  $BUILDAH build "${spark_app[@]}" --target training --tag "$TRAINING" ../..
}

kubeflow() {
  local context
  context=$(mktemp -d "$out/.kubeflow.XXXXXX")
  cp "$programs/spark-operator" "$programs/entrypoint.sh" "$context"
  $BUILDAH build "${options[@]}" --build-arg SPARK_IMAGE=localhost/sinkpipeline-runtime:1 \
    --tag "$KUBEFLOW" --file kubeflow/Dockerfile "$context"
  rm -rf "$context"
}

image_id() { $BUILDAH inspect --type image --format '{{.FromImageID}}' "$1"; }

# A layer that is there already is not written again.
lay_out() {
  local name=$1 id mark
  id=$(image_id "$name")
  mark=$out/layout/$(tr '/:' '--' <<<"${name#localhost/}").id
  [[ -f $mark && $(<"$mark") == "$id" ]] && return
  $BUILDAH push -q "$name" "oci:$out/layout:$name"
  printf '%s\n' "$id" >"$mark"
}

# One at a time: what a build that was killed has left would bar what is done to its images.
exec 9>"$out/lock"
flock 9
# What buildah leaves mounted where one of its commands was killed, and where none was.
unmount() { awk -v root="$out/storage/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount; }
trap unmount EXIT
$BUILDAH rm --all >/dev/null 2>&1 || true
rm -rf "$out"/.base.* "$out"/.kubeflow.*
# What an earlier version of this script made.
rm -f "$out"/*.tar "$out"/*.tar.id

base
maven
pause
runtime
export PYTHON_IMAGE=localhost/python:3.11 MAVEN_IMAGE=localhost/maven:3 REGISTRY=localhost TAG TRAINING
BUILDER=$BUILDAH BUILD_OPTIONS="${options[*]}" ./build.sh
kubeflow
for image in localhost/pause:1 "localhost/sinkpipeline-operator:$TAG" "localhost/sinkpipeline-spark:$TAG" "$KUBEFLOW"; do
  lay_out "$image"
done
# What images that were replaced leave, once it is much: the stages that make the next build quick have no names either.
if (($($BUILDAH images --all --quiet | wc -l) > 300)); then
  $BUILDAH rmi --prune >/dev/null 2>&1 || true
fi
