# Cases with a line each, for scripts that source this file and network.sh.

work=$(mktemp -d)
# Programs of another user look into it.
chmod 711 "$work"
failed=0
case_at_work=

end() {
    local status=$?
    trap - EXIT INT TERM HUP
    [ -z "$case_at_work" ] || kill "$case_at_work" 2>/dev/null || true
    network_down
    rm -rf "$work"
    exit "$status"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Runs a case, which returns other than 0 where something did not hold; on a failure all that its
# programs said is printed.
case_of() {
    local title=$1 begun=$EPOCHREALTIME status
    shift
    rm -rf "$work/said"
    mkdir "$work/said"
    # In a shell of its own, where the first command that fails ends it; not in a condition, where
    # bash would go on. In the background, so that a signal is taken at once.
    set +e
    (
        trap - EXIT INT TERM HUP
        set -e
        "$@"
        expect_nobody
    ) >"$work/said/case" 2>&1 &
    case_at_work=$!
    wait "$case_at_work"
    status=$?
    case_at_work=
    set -e
    local took
    took=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", to - from }')
    if [ "$status" = 0 ]; then
        printf 'ok      %-60s %s\n' "$title" "$took"
        return
    fi
    failed=$((failed + 1))
    printf 'FAILED  %-60s %s\n' "$title" "$took"
    (cd "$work/said" && grep -r "" . | sed 's/^/        /')
    end_programs
}

# What a failed case has left does not disturb the next one.
end_programs() {
    local program pid
    for program in "$programs"/*; do
        for pid in $(network_running "$program"); do kill -9 "$pid" 2>/dev/null || true; done
    done
}

all_cases_done() {
    printf 'all in %d s, ' "$SECONDS"
    [ "$failed" = 0 ] || { echo "$failed failed"; exit 1; }
    echo "none failed"
}

# A line of what was printed is as this extended regular expression says.
expect() {
    grep -qE -- "$2" "$work/said/$1" || { echo "$1 has no line with: $2"; return 1; }
}

# Each of these processes ends with this status.
expect_status() {
    local wanted=$1 pid status bad=0
    shift
    for pid in "$@"; do
        status=0
        wait "$pid" || status=$?
        [ "$status" = "$wanted" ] || { echo "process $pid ended with $status"; bad=1; }
    done
    return "$bad"
}

# Nobody of the programs is left, some seconds after their end.
expect_nobody() {
    local program left
    for _ in $(seq 50); do
        left=
        for program in "$programs"/*; do left+=$(network_running "$program"); done
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    echo "left behind: $left"
    return 1
}

# Waits until a command succeeds.
until_true() {
    for _ in $(seq 300); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "waited in vain: $*"
    return 1
}

# The programs, copied to where every user can run them. Another profile builds faster.
programs="$work/programs"
profile=${PROFILE:-release}
build() {
    local program folder="$CARGO_TARGET_DIR/$profile"
    [ "$profile" != dev ] || folder="$CARGO_TARGET_DIR/debug"
    # All of the workspace, whose dependencies are then built once.
    cargo build --locked --profile "$profile" --bin chunkcomm-credential "${@/#/--example=}"
    mkdir "$programs"
    for program in "$@"; do cp "$folder/examples/$program" "$programs"; done
    cp "$folder/chunkcomm-credential" "$work"
    # What is timed begins here.
    SECONDS=0
}

# Measures on hosts, too.
build_chunkperf() {
    local folder="$CARGO_TARGET_DIR/$profile"
    [ "$profile" != dev ] || folder="$CARGO_TARGET_DIR/debug"
    cargo build --locked --profile "$profile" -p chunkcomm-bench --bin chunkperf
    cp "$folder/chunkperf" "$programs"
    SECONDS=0
}

make_credential() { "$work/chunkcomm-credential" new "$1" >/dev/null; }
