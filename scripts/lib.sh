# Steps with a heading, a time and a verdict each; sourced by the other scripts, never run.
# shellcheck shell=bash

# Names of the steps that failed.
FAILED_STEPS=()

# step NAME COMMAND [ARGUMENT...]: runs a command or a function of the calling script. A failure is
# recorded and the script goes on, so that one run tells everything there is to tell.
step() {
    local name=$1 started=$SECONDS status
    shift
    printf '\n== %s\n' "$name"
    # Not `if "$@"`: a condition switches errexit off inside the function that it calls.
    set +e
    (
        set -euo pipefail
        "$@"
    ) </dev/null
    status=$?
    set -e
    if ((status == 0)); then
        printf -- '-- %s: ok, %d s\n' "$name" $((SECONDS - started))
    else
        FAILED_STEPS+=("$name")
        printf -- '-- %s: FAILED with status %d, %d s\n' "$name" "$status" $((SECONDS - started))
    fi
}

# steps_verdict: prints which steps failed; its status is 1 if any did.
steps_verdict() {
    printf '\n'
    if ((${#FAILED_STEPS[@]} == 0)); then
        printf 'all steps passed in %d s\n' "$SECONDS"
        return 0
    fi
    printf 'failed step: %s\n' "${FAILED_STEPS[@]}"
    return 1
}

# target_folder: where cargo builds, whatever the environment and configuration make of it.
target_folder() {
    cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}
