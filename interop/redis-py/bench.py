"""redis-py's Lock as a side of the bench: takes locks under load and notes when; see ../README.md."""

import json
import sys
import threading
import time

import redis

LEASE = 30


def main():
    host, port = sys.argv[1].split(":")
    # By default the hundred-and-first thread is refused.
    client = redis.Redis(host=host, port=int(port), max_connections=1024)
    client.ping()
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            order = json.loads(line)
            answer = {"done": {"count": run(client, order["run"]), "at_ns": time.monotonic_ns()}}
        except Exception as error:
            answer = {"failed": repr(error)}
        print(json.dumps(answer), flush=True)


def run(client, order):
    stamps, errors = [], []
    tasks = order["tasks"]
    ready = threading.Barrier(tasks)
    threads = []
    for number in range(tasks):
        name = order["name"] if order["names"] == "one" else f"{order['name']} {number}"
        args = (client.lock(name, timeout=LEASE), number, order, ready, stamps, errors)
        threads.append(threading.Thread(target=work, args=args))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    with open(order["file"], "w") as file:
        file.writelines(f"{' '.join(map(str, stamp))}\n" for stamp in stamps)
    return len(stamps)


def work(lock, number, order, ready, all_stamps, errors):
    start, stop, hold = order["start_ns"], order["stop_ns"], order["hold_us"] / 1e6
    stamps = []
    try:
        ready.wait()
        time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
        while (asked := time.monotonic_ns()) < stop or not stamps:
            assert lock.acquire()
            entered = time.monotonic_ns()
            if hold:
                time.sleep(hold)
            leaving = time.monotonic_ns()
            lock.release()
            stamps.append((number, asked, entered, leaving, time.monotonic_ns()))
    except Exception as error:
        errors.append(error)
    all_stamps.extend(stamps)


main()
