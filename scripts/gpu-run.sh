#!/usr/bin/env bash
# Runs the GPU tests and the benchmarks on a host with a GPU; `scripts/gpu-host` copies this file
# into its folder as `run`. Needs bash and coreutils, no Rust, no network; and for the comparison
# with PyTorch's allocator PyTorch, a C++ compiler and the CUDA headers.
#
#   OUT=folder ./run [tests|host|proof|in-flight|lease|startup|staged|examples] [OPTION...]
#                                             (default: ./out, tests)
#
# Leaves in $OUT, always with log.txt:
#   tests      gpu-tests.txt; benches.txt: the Criterion benches of frames and of overlap, the examples
#   host       the same without a GPU, where most tests say that they do not run; only tries the script
#   proof      all.tar.gz: every scenario of `pinpool bench all` as JSON, and its page; OPTIONs go to it. Takes half
#              of the memory, and better with 64 GiB of it; TMPDIR on a disk; about ten minutes, less with --only
#   in-flight  in-flight.json, with PyTorch beside it
#   lease      lease.json, with PyTorch beside it; benches-lease.txt: its Criterion benches, and RMM where it is installed
#   startup    startup.json, with PyTorch beside it; benches-startup.txt; better with 80 GiB of memory available
#   staged     staged.json, with PyTorch beside it; benches-staged.txt; better with 16 GiB, and TMPDIR on a disk
#   examples   benches-examples.txt: a vector of 1 GiB, and a model of about 2 GiB in TMPDIR, through a stager
# Every step is bounded; all steps of one run but proof together take less than ten minutes. A failing step does not stop the
# others, but the status is then 1.
# shellcheck disable=SC2317 # the functions are called by name, through `step`
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
source "$here/lib.sh"

mode=${1:-tests}
case $mode in
tests | host | proof | in-flight | lease | startup | staged | examples) ;;
*) die "there are tests, host, proof, in-flight, lease, startup, staged and examples, not '$mode'" ;;
esac
options=("${@:2}")
if ((${#options[@]} > 0)) && [[ $mode != proof ]]; then die "'$mode' takes no options"; fi
backend=cuda
if [[ $mode == host ]]; then backend=host; fi
mkdir -p "${OUT:-out}"
out=$(cd "${OUT:-out}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Criterion keeps its history there, and not in $OUT.
export CRITERION_HOME=$scratch/criterion

# within SECONDS COMMAND...: stops it there.
within() {
    timeout --kill-after=5 "$@"
}

machine() {
    printf 'commit %s\n' "$(cat "$here/commit")"
    uname -srm
    printf '%s cores, ' "$(nproc)"
    grep MemTotal /proc/meminfo
    if command -v nvidia-smi >/dev/null; then
        within 10 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    else
        echo 'no nvidia-smi'
    fi
}

# Virtual machines with GPUs often get their memory from the host page by page, on first touch,
# which would be measured instead of pinning. `tail` keeps what it reads until its input ends, so
# this touches 4 GiB, or as many MiB as are asked for, or half of what there is, before anything is timed.
# Several of them share it, and each goes on holding its part until all have theirs.
touch_memory() {
    local most=${1:-4096} mib jobs each job held=$scratch/held deadline=$((SECONDS + 25)) full=0
    mib=$(awk -v most="$most" \
        '$1 == "MemAvailable:" { half = int($2 / 2048); print (half < most ? half : most) }' /proc/meminfo)
    jobs=$(($(nproc) < 16 ? $(nproc) : 16))
    each=$((mib / jobs))
    mkdir -p "$held"
    for ((job = 0; job < jobs; job++)); do
        {
            head -c "${each}M" /dev/zero
            : >"$held/$job"
            until [[ -e $held/all ]]; do sleep 0.1; done
        } | within 30 tail -c "${each}M" >/dev/null &
    done
    while ((full < jobs && SECONDS < deadline)); do
        sleep 0.1
        full=$(find "$held" -type f | wc -l)
    done
    : >"$held/all"
    wait
    printf 'touched %d of %d MiB\n' $((each * full)) "$mib"
}

# The tests count only if some ran: where they find no device they say so and do not pass.
gpu_tests() {
    local report=$out/gpu-tests.txt
    # Each test has contexts of its own, and a device takes only so many.
    within 400 "$here/gpu" --nocapture --test-threads "$(($(nproc) < 12 ? $(nproc) : 12))" 2>&1 | tee "$report"
    if [[ $backend == host ]]; then return; fi
    if grep -F 'not run: no CUDA device' "$report" >/dev/null ||
        ! grep -E '^test result: ok\. [1-9][0-9]* passed' "$report" >/dev/null; then
        echo 'no GPU test ran'
        return 1
    fi
}

# The figures of all scenarios; they come back as one file.
proof() {
    local status=0
    within 1200 "$here/pinpool" bench all "${options[@]}" --json "$scratch/all" --report "$scratch/page" || status=$?
    # Of a scenario that failed there is no result; those of the others are kept.
    tar -C "$scratch" -czf "$out/all.tar.gz" all page
    return "$status"
}

# pytorch NAME [SECONDS]: PyTorch's side of the next step, built here because its libraries are here.
pytorch() {
    command -v python3 >/dev/null ||
        { echo 'no python3: the next result will lack the ratio to PyTorch'; return 1; }
    within "${2:-120}" python3 "$here/pytorch/$1.py" "$scratch/pytorch.json" ||
        { echo 'PyTorch was not measured: the next result will lack the ratio to it'; return 1; }
}

# compared SCENARIO [SECONDS]: what `pinpool bench` measures beside PyTorch.
compared() {
    local compare=()
    if [[ -s $scratch/pytorch.json ]]; then compare=(--pytorch "$scratch/pytorch.json"); fi
    within "${2:-120}" "$here/pinpool" bench "$1" "${compare[@]}" --json "$out/$1.json"
    # It says so and succeeds where there is no GPU.
    [[ -s $out/$1.json ]]
}

rmm() {
    if ! command -v python3 >/dev/null; then
        echo "NOT RUN: RMM's pools: no python3"
        return
    fi
    within 60 python3 "$here/rmm/lease.py" "$scratch/rmm.json"
    if [[ -s $scratch/rmm.json ]]; then add_to_benches 'RMM' "$scratch/rmm.json"; fi
}

criterion() {
    local bench=$1 seconds=$2 report
    report=$scratch/bench-$bench.txt
    within "$seconds" "$here/benches/$bench" --bench --noplot \
        --warm-up-time 0.3 --measurement-time 1 --sample-size 10 >"$report" 2>&1 ||
        { add_to_benches "$bench" "$report"; tail -n 20 "$report"; return 1; }
    add_to_benches "$bench" "$report"
    grep -c 'time: ' "$report" | sed 's/$/ benchmarks/'
}

# add_to_benches NAME FILE: what a program printed, in the one file for all of them.
add_to_benches() {
    { printf '== %s\n' "$1"; cat "$2"; printf '\n'; } >>"$benches"
}

# noise_clip FILE: 30 frames of 1080p noise, for hosts without ffmpeg.
noise_clip() {
    printf 'YUV4MPEG2 W1920 H1080 F30:1 C420jpeg\n'
    for _ in {1..30}; do
        printf 'FRAME\n'
        head -c 3110400 /dev/urandom
    done
}

examples() {
    local report=$scratch/examples.txt status=0
    noise_clip >"$scratch/noise.y4m"
    export PINPOOL_BACKEND=$backend
    {
        within 20 "$here/quickstart" &&
            within 20 "$here/in_flight" &&
            within 20 "$here/waiting" &&
            (cd "$here" && within 20 ./config_file pool.toml) &&
            (cd "$scratch" && within 40 "$here/video_pipeline" noise.y4m) &&
            within 20 "$here/upload_vec" 64 &&
            within 20 "$here/load_safetensors" --mib 48
    } >"$report" 2>&1 || status=1
    add_to_benches 'examples' "$report"
    cat "$report"
    return "$status"
}

# loaded PROGRAM ARGUMENT...: one of the examples that copy through a stager, with more to copy; it fails
# where there is no GPU.
loaded() {
    local report=$scratch/$1.txt status=0
    PINPOOL_BACKEND=cuda within 120 "$here/$1" "${@:2}" >"$report" 2>&1 || status=$?
    add_to_benches "$*" "$report"
    cat "$report"
    return "$status"
}

leases() {
    rm -f "$benches"
    step 'machine' machine
    if command -v nvidia-smi >/dev/null; then
        step 'PyTorch, for comparison' pytorch lease
        step 'RMM, for comparison' rmm
    else
        printf '\nNOT RUN: PyTorch and RMM: no GPU here\n'
    fi
    step 'leases and drops' compared lease
    step 'bench: lease' criterion lease 100
    step 'bench: handoff' criterion handoff 40
    step 'bench: exhausted' criterion exhausted 40
    step 'bench: in flight' criterion in_flight 30
    steps_verdict
}

# beside_pytorch SCENARIO WHAT MIB SECONDS SECONDS SECONDS: a scenario whose other side PyTorch is, with so much memory
# touched before; what PyTorch, the scenario and its Criterion bench may take.
beside_pytorch() {
    rm -f "$benches"
    step 'machine' machine
    step 'touch memory' touch_memory "$3"
    if command -v nvidia-smi >/dev/null; then
        step 'PyTorch, for comparison' pytorch "$1" "$4"
    else
        printf '\nNOT RUN: PyTorch: no GPU here\n'
    fi
    step "$2" compared "$1" "$5"
    step "bench: $1" criterion "$1" "$6"
    steps_verdict
}

startups() {
    # More than the largest pool that is opened.
    beside_pytorch startup 'opening pools' 36864 40 100 20
}

staged_copies() {
    # More than the largest copy, its lease and the file. Its parts keep to their own bounds, so that a slow host
    # loses rounds and not the result.
    beside_pytorch staged 'staged copies' 16384 50 180 25
}

large_examples() {
    rm -f "$benches"
    step 'machine' machine
    step 'touch memory' touch_memory 8192
    step 'a vector' loaded upload_vec 1024
    step 'a model' loaded load_safetensors --mib 2048
    steps_verdict
}

in_flight_leases() {
    step 'machine' machine
    step 'touch memory' touch_memory
    step 'PyTorch, for comparison' pytorch in_flight
    step 'leases in flight' compared in-flight
    steps_verdict
}

all_scenarios() {
    step 'machine' machine
    # Half of it, which is what the scenarios may pin.
    step 'touch memory' touch_memory 131072
    step 'every scenario' proof
    steps_verdict
}

all_tests() {
    rm -f "$benches"
    step 'machine' machine
    step 'GPU tests' gpu_tests
    step 'bench: frame churn' criterion frame_churn 45
    step 'bench: overlap' criterion overlap 45
    step 'examples' examples
    steps_verdict
}

# Not `"$run" || …`, which would switch errexit off inside it.
set +e
benches=$out/benches.txt
case $mode in
proof) run=all_scenarios ;;
in-flight) run=in_flight_leases ;;
lease) run=leases benches=$out/benches-lease.txt ;;
startup) run=startups benches=$out/benches-startup.txt ;;
staged) run=staged_copies benches=$out/benches-staged.txt ;;
examples) run=large_examples benches=$out/benches-examples.txt ;;
*) run=all_tests ;;
esac
"$run" 2>&1 | tee "$out/log.txt"
exit "${PIPESTATUS[0]}"
