#!/bin/sh
# In the place of ssh: takes the options that ssh is given, a host and a command. What the host is
# like, its name says.
batch=no patience=
while [ "$1" = -o ]; do
    case $2 in
    BatchMode=yes) batch=yes ;;
    ConnectTimeout=*) patience=${2#*=} ;;
    esac
    shift 2
done
host=$1
shift

fail() {
    echo "$1" >&2
    exit 255
}

# A shell there, which lives on when this program is killed, until its input ends. Of what a signal
# killed, ssh says no more than 255.
there() {
    exec 3<&0 </dev/null
    sh -c "$1" <&3 3<&- &
    exec 3<&- >&- 2>&-
    wait $!
    status=$?
    [ $status -le 128 ] || status=255
    exit $status
}

# The program that is to run there is another one.
instead() {
    printf %s "$2" | sed "s|[^ '\\\\]*/examples/nodes|$1|"
}

case $host in
near*) there "$*" ;;
absent) fail "ssh: Could not resolve hostname $host: Name or service not known" ;;
far)
    [ -n "$patience" ] || exec sleep 100000
    fail "ssh: connect to host $host port 22: Connection timed out"
    ;;
locked)
    if [ $batch != yes ]; then
        printf "%s's password: " "$host" >&2
        exec sleep 100000
    fi
    fail "$host: Permission denied (publickey,password)."
    ;;
replaced) fail 'Host key verification failed.' ;;
bare) there "$(instead /nowhere/nodes "$*")" ;;
barred) there "$(instead /dev/null "$*")" ;;
early) there "$(instead "sh'\\\\'' '\\\\''$EARLY" "$*")" ;;
frozen) exec sleep 100000 ;;
mute)
    echo 'chunkcomm: rank 0 listens at port 9'
    exec sleep 100000
    ;;
esac
