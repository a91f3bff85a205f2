#!/usr/bin/env bash
# The quick tests on other Pythons than the oldest, on which everything is tested: those that are
# named, or else 3.12 to 3.14, if found. With --first-run, what the README has a newcomer run, for
# two steps, comes before them; it installs torch, which can take gigabytes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_python() {  # of a version: a shim of pyenv may be on the path without a Python behind it
    for python in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python "$(command -v "python$1")"; do
        if "$python" -c '' 2> /dev/null; then echo "$python" && return; fi
    done
    return 1
}

first_run() {  # with a Python, in an environment of its own
    command=$(sed -n '/<!-- run-command -->/,/^```$/p' README.md | sed -n '/^```sh$/,/^```$/p' | sed '1d;$d')
    test -n "$command"
    command="${command//python3/$1} --set main.steps=2 --quiet --run-dir $work/run"
    echo "+ ${command//.venv/$work/first}"
    bash -euo pipefail -c "${command//.venv/$work/first}"
    rm -rf "$work/first" "$work/run"
}

left_out() {  # of a Python: the packages that are not for it; gem-llm alone wants this msgspec
    "$1" -c 'from rlc.catalog.packages import NEWEST_PYTHON, name_of, too_new
print("torch", "msgspec", *map(name_of, filter(too_new, NEWEST_PYTHON)), sep="|")'
}

# The quick tests never load torch: a module that only can be found stands in for it.
stand_in_for_torch() {
    folder=$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir "$folder/torch" "$folder/torch-0.dist-info"
    echo 'raise ImportError("this stands in for torch")' > "$folder/torch/__init__.py"
    printf 'Metadata-Version: 2.1\nName: torch\nVersion: 0\n' > "$folder/torch-0.dist-info/METADATA"
}

first=
if test "${1-}" = --first-run; then first=yes && shift; fi
test $# -gt 0 && must=exit || must=continue
for version in ${@:-3.12 3.13 3.14}; do
    python=$(find_python "$version") || { echo "there is no Python $version here"; $must 1; }
    echo "+ the quick tests on $("$python" --version)"
    test -z "$first" || first_run "$python"
    "$python" -m venv "$work/$version"
    grep -vE "^(#|($(left_out "$python"))==)" constraints.txt > "$work/wanted.txt"
    "$work/$version/bin/pip" install -qq --no-deps -r "$work/wanted.txt" -e .
    stand_in_for_torch "$work/$version/bin/python"
    "$work/$version/bin/pytest" -n 2 -m quick
done
