#!/usr/bin/env bash
# What the README tells a newcomer to run, for two steps, and the quick tests, on other Pythons than
# the oldest, on which everything is tested: those that are named, or else 3.12 and 3.13, if found.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_command=$(sed -n '/<!-- run-command -->/,/^```$/p' README.md | sed -n '/^```sh$/,/^```$/p' | sed '1d;$d')
test -n "$run_command"

find_python() {  # of a version: a shim of pyenv may be on the path without a Python behind it
    for python in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python "$(command -v "python$1")"; do
        if "$python" -c '' 2> /dev/null; then echo "$python" && return; fi
    done
    return 1
}

test $# -gt 0 && must=exit || must=continue
for version in ${@:-3.12 3.13}; do
    python=$(find_python "$version") || { echo "there is no Python $version here"; $must 1; }
    command="${run_command//python3/$python} --set main.steps=2 --quiet --run-dir $work/run-$version"
    command="${command//.venv/$work/$version}"
    echo "+ $command"
    bash -euo pipefail -c "$command"
    "$work/$version/bin/pip" install -q -c constraints.txt -e '.[dev]'
    "$work/$version/bin/pytest" -n 2 -m quick
done
