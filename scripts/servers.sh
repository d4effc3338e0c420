#!/bin/sh
# Installs the servers the tests start privately: redis-server, PostgreSQL and
# MariaDB. What is there already is left alone; nothing is started, no system
# service is enabled and no database cluster is created.
#
#   scripts/servers.sh          install what is missing
#   scripts/servers.sh --check  only say what is missing; exit status 1 if anything is
#
# Debian and its relatives are handled here, as root or through sudo. On other
# systems the script says which packages to install.
set -eu

PATH=$PATH:/usr/sbin:/usr/local/bin:/usr/local/sbin:/opt/homebrew/bin

# found NAME [FOLDER...] succeeds if an executable NAME is on the PATH or in a FOLDER.
found() {
	name=$1
	shift
	command -v "$name" >/dev/null 2>&1 && return 0
	for folder in "$@"; do
		[ -x "$folder/$name" ] && return 0
	done
	return 1
}

# The same folders that internal/testserver looks into.
have_redis() { found redis-server || found valkey-server; }
have_postgres() {
	found initdb /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin &&
		found postgres /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin
}
have_mariadb() { found mariadbd && found mariadb-install-db && found my_print_defaults; }

missing() {
	have_redis || echo redis-server
	have_postgres || echo postgresql
	have_mariadb || echo mariadb-server
}

todo=$(missing)
if [ -z "$todo" ]; then
	echo "servers: redis-server, PostgreSQL and MariaDB are installed"
	exit 0
fi
todo=$(echo $todo)
echo "servers: missing: $todo"
[ "${1:-}" = --check ] && exit 1

if ! command -v apt-get >/dev/null 2>&1; then
	cat >&2 <<-'HELP'
		servers: this system has no apt-get; install the servers by hand:
		  Fedora, RHEL   dnf install redis postgresql-server mariadb-server   (or valkey)
		  Arch           pacman -S valkey postgresql mariadb
		  Alpine         apk add redis postgresql mariadb
		  macOS          brew install redis postgresql mariadb
		They need not be started: the tests start private ones. HOLDFAST_REAL=off runs the tests without them.
	HELP
	exit 1
fi

root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "servers: installing packages needs root: run this as root, or install sudo" >&2
		exit 1
	fi
	root=sudo
fi

# While packages are installed, two files keep their scripts quiet: policy-rc.d
# (101: do not start services) and one that stops PostgreSQL's package from
# creating a cluster. Each is written only where there is none, and taken away again.
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.d/holdfast-tests.conf
ours=
log=$(mktemp)

clean_up() {
	for file in $ours; do
		$root rm -f "$file"
	done
	$root rmdir --ignore-fail-on-non-empty /etc/postgresql-common/createcluster.d /etc/postgresql-common 2>/dev/null || true
	rm -f "$log"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# put FILE writes standard input to FILE and remembers to remove it.
put() {
	ours="$ours $1"
	$root mkdir -p "$(dirname "$1")"
	$root tee "$1" >/dev/null
}

# quietly runs a command as root and shows what it printed only when it fails.
quietly() {
	if ! $root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 "$@" >"$log" 2>&1; then
		cat "$log" >&2
		echo "servers: failed: $*" >&2
		return 1
	fi
}

if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' | put "$policy"
	$root chmod 755 "$policy"
fi
echo 'create_main_cluster = false' | put "$cluster"

# A list that was never fetched, or is out of date, is the usual reason for a 404: fetch it first.
quietly apt-get -q update

packages=
for name in $todo; do
	# MariaDB's core packages are the programs without service, system user and database; older releases have only the whole.
	if [ "$name" = mariadb-server ] && apt-cache show mariadb-server-core mariadb-client-core >/dev/null 2>&1; then
		name='mariadb-server-core mariadb-client-core'
	fi
	packages="$packages $name"
done
# --no-remove: a machine that has MySQL instead of MariaDB keeps it, and is told.
quietly apt-get -q -y --no-remove --no-install-recommends -o Dpkg::Options::=--force-confold install $packages

todo=$(missing)
if [ -n "$todo" ]; then
	echo "servers: still missing after installing$packages:" $todo >&2
	exit 1
fi
echo "servers: installed$packages; nothing was started"
