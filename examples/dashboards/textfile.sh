#!/bin/sh
# Write the fleet's metrics for the node exporter's textfile collector; from cron or a systemd timer, once a minute:
#   textfile.sh FOLDER [words for `torchx-pulumi fleet`: --backend URL, --live]
# The file is put in place in one step, so that a scrape never finds half of it.
set -eu
folder=$1
shift
new=$(mktemp "$folder/.torchx.XXXXXX")
trap 'rm -f "$new"' EXIT
torchx-pulumi fleet --prometheus "$@" > "$new"
chmod 644 "$new"
mv "$new" "$folder/torchx.prom"
