// A process that takes a lock with redsync, told what to do by lines; see ../README.md.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const wait = 2 * time.Millisecond

func main() {
	client := goredislib.NewClient(&goredislib.Options{Addr: os.Args[1] + ":" + os.Args[2]})
	lease := time.Duration(number(os.Args[4])) * time.Millisecond
	lock := redsync.New(goredis.NewPool(client)).NewMutex(os.Args[3],
		redsync.WithExpiry(lease), redsync.WithTries(100_000), redsync.WithRetryDelay(wait))
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(obey(lock, strings.Fields(lines.Text())))
	}
}

func obey(lock *redsync.Mutex, words []string) string {
	switch words[0] {
	case "try":
		if lock.TryLock() == nil {
			return "yes"
		}
		return "no"
	case "extend":
		if done, err := lock.Extend(); done && err == nil {
			return "extended"
		}
		return "lost"
	case "release":
		if done, err := lock.Unlock(); done && err == nil {
			return "released"
		}
		return "lost"
	case "hammer":
		report, err := hammer(lock, number(words[1]), number(words[2]), words[3])
		if err != nil {
			return "error " + err.Error()
		}
		return report
	}
	return "what?"
}

func hammer(lock *redsync.Mutex, rounds, holdMicros int64, path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	overlaps := 0
	for range rounds {
		if err := lock.Lock(); err != nil {
			return "", err
		}
		alone, counter := enter(file)
		time.Sleep(time.Duration(holdMicros) * time.Microsecond)
		if !leave(file, counter) || !alone {
			overlaps++
		}
		if done, err := lock.Unlock(); !done || err != nil {
			return "", errors.Join(errors.New("it was lost"), err)
		}
	}
	report, err := json.Marshal(map[string]int64{"acquisitions": rounds, "overlaps": int64(overlaps)})
	return string(report), err
}

// enter says whether nobody was inside, and the counter to hand to leave.
func enter(file *os.File) (bool, uint64) {
	alone := get(file, 0) == 0
	put(file, 0, uint64(os.Getpid()))
	return alone, get(file, 8)
}

// leave says whether nobody came in meanwhile.
func leave(file *os.File, counter uint64) bool {
	put(file, 8, counter+1)
	alone := get(file, 0) == uint64(os.Getpid())
	put(file, 0, 0)
	return alone
}

func get(file *os.File, at int64) uint64 {
	var bytes [8]byte
	if _, err := file.ReadAt(bytes[:], at); err != nil {
		panic(err)
	}
	return binary.LittleEndian.Uint64(bytes[:])
}

func put(file *os.File, at int64, value uint64) {
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], value)
	if _, err := file.WriteAt(bytes[:], at); err != nil {
		panic(err)
	}
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}
