#!/usr/bin/env bash
# Each command of the Pulumi CLI writes a log into its home, also without -v or --logtostderr.
#
# Version: Pulumi CLI 3.274.1.
# Guess: the CLI logs if it is asked to.
# Behavior: `pulumi stack init`, `up`, `stack output` and even `version` leave a file each in PULUMI_HOME/logs. A file in
#   place of that folder turns the log off; neither an option nor a variable was found that does.
# Matters: logs of large programs take as much time as the deployment, and hold what the resources hold.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
version: 1 log
stack init: 1 log
stack output: 1 log
with a file in place of the folder: 0 logs, stack output answers {}
END

logs() { (find home/logs -type f -name '*.log' 2> /dev/null || true) | wc -l; }
told() { local new=$(($(logs) - before)); echo "$1: $new log$([ "$new" = 1 ] || echo s)"; }
mkdir project && echo $'name: findings\nruntime: python' > project/Pulumi.yaml
{
    rm -rf home/logs && before=0
    pulumi version > /dev/null
    told version
    before=$(logs)
    pulumi --cwd project stack init dev > /dev/null 2>&1
    told "stack init"
    before=$(logs)
    pulumi --cwd project stack output --stack dev > /dev/null
    told "stack output"
    rm -rf home/logs && touch home/logs && before=0
    answer=$(pulumi --cwd project stack output --stack dev --json)
    echo "$(told "with a file in place of the folder"), stack output answers $answer"
} | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
