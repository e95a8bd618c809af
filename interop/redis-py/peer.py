"""A process that takes a lock with redis-py's Lock, told what to do by lines; see ../README.md."""

import json
import sys
import time

import redis
import word

WAIT = 0.002


def main():
    host, port, name, lease_ms = sys.argv[1:5]
    client = redis.Redis(host=host, port=int(port))
    lock = client.lock(name, timeout=int(lease_ms) / 1000, sleep=WAIT)
    print("ready", flush=True)
    for line in sys.stdin:
        print(obey(lock, line.split()), flush=True)


def obey(lock, words):
    match words:
        case ["try"]:
            return "yes" if lock.acquire(blocking=False) else "no"
        case ["extend"]:
            try:
                lock.reacquire()
                return "extended"
            except redis.exceptions.LockError:
                return "lost"
        case ["release"]:
            try:
                lock.release()
                return "released"
            except redis.exceptions.LockError:
                return "lost"
        case ["hammer", rounds, hold_us, path]:
            return hammer(lock, int(rounds), int(hold_us), path)
    return "what?"


def hammer(lock, rounds, hold_us, path):
    overlaps = 0
    with word.Word(path) as inside:
        for _ in range(rounds):
            assert lock.acquire()
            alone, counter = inside.enter()
            time.sleep(hold_us / 1e6)
            overlaps += not (inside.leave(counter) and alone)
            lock.release()
    return json.dumps({"acquisitions": rounds, "overlaps": overlaps})


main()
