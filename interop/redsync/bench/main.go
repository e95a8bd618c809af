// redsync or bsm/redislock as a side of the bench: takes locks under load and notes when; see ../../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	goredislib "github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

type order struct {
	Tasks   int    `json:"tasks"`
	Names   string `json:"names"`
	Name    string `json:"name"`
	HoldUs  int64  `json:"hold_us"`
	StartNs int64  `json:"start_ns"`
	StopNs  int64  `json:"stop_ns"`
	File    string `json:"file"`
}

type done struct {
	Count int   `json:"count"`
	AtNs  int64 `json:"at_ns"`
}

type answer struct {
	Done   *done  `json:"done,omitempty"`
	Failed string `json:"failed,omitempty"`
}

// taker waits for its lock and returns what gives it back.
type taker func() (release func() error, err error)

func main() {
	client := goredislib.NewClient(&goredislib.Options{Addr: os.Args[2]})
	taking := redsyncTaker(client)
	if os.Args[1] == "redislock" {
		taking = redislockTaker(client)
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var said answer
		if count, err := obey(lines.Text(), taking); err != nil {
			said.Failed = err.Error()
		} else {
			said.Done = &done{count, now()}
		}
		line, _ := json.Marshal(said)
		fmt.Println(string(line))
	}
}

func obey(line string, taking func(string) taker) (int, error) {
	var told struct {
		Run *order `json:"run"`
	}
	if err := json.Unmarshal([]byte(line), &told); err != nil {
		return 0, err
	}
	if told.Run == nil {
		return 0, fmt.Errorf("what? %s", line)
	}
	return run(told.Run, taking)
}

func run(told *order, taking func(string) taker) (int, error) {
	stamps := make([][]string, told.Tasks)
	errs := make([]error, told.Tasks)
	var all sync.WaitGroup
	for number := range told.Tasks {
		name := told.Name
		if told.Names == "own" {
			name = fmt.Sprintf("%s %d", told.Name, number)
		}
		all.Go(func() { stamps[number], errs[number] = work(taking(name), number, told) })
	}
	all.Wait()
	var text strings.Builder
	count := 0
	for number := range told.Tasks {
		if errs[number] != nil {
			return 0, errs[number]
		}
		for _, stamp := range stamps[number] {
			text.WriteString(stamp)
			count++
		}
	}
	return count, os.WriteFile(told.File, []byte(text.String()), 0o600)
}

func work(take taker, number int, told *order) (stamps []string, err error) {
	time.Sleep(time.Duration(told.StartNs - now()))
	for asked := now(); asked < told.StopNs || len(stamps) == 0; asked = now() {
		release, err := take()
		if err != nil {
			return nil, err
		}
		entered := now()
		if told.HoldUs > 0 {
			time.Sleep(time.Duration(told.HoldUs) * time.Microsecond)
		}
		leaving := now()
		if err := release(); err != nil {
			return nil, err
		}
		stamps = append(stamps, fmt.Sprintf("%d %d %d %d %d\n", number, asked, entered, leaving, now()))
	}
	return stamps, nil
}

// now is nanoseconds of the clock that all languages can read.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}
