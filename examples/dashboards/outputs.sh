#!/bin/sh
# Say in plain shell how a stack's job is; exit code 1 where it failed, which is what a pipeline wants to know.
#   outputs.sh [STACK]
# Needs pulumi and jq; no passphrase, since no output is secret.
set -eu
outputs=$(pulumi stack output --json ${1:+--stack "$1"})
printf '%s\n' "$outputs" | jq --raw-output '
  .torchx.observed as $seen
  | "\(.app_id): \(.state), \(.reason)",
    ($seen.message | select(. != "") | "  \(.)"),
    ($seen.diagnoses[]? | "  do: \(.resolution)"),
    ($seen.roles[] | "  \(.name): \(.counts | to_entries | map("\(.value) \(.key)") | join(", "))"),
    "  logs: \(.log_command)"'
test "$(printf '%s\n' "$outputs" | jq --raw-output .state)" != FAILED
