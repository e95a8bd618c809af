// Package load is a side of the bench in Go: it takes locks under load and notes when; see ../README.md.
package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

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

// Taker waits for its lock and returns what gives it back.
type Taker func() (release func() error, err error)

// Taking makes the taker of a lock of that name for the task of that number. The tasks of a run have different numbers.
type Taking func(name string, number int) (Taker, error)

// Serve says that it is ready, and obeys orders until stdin ends.
func Serve(taking Taking) {
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

func obey(line string, taking Taking) (int, error) {
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

func run(told *order, taking Taking) (int, error) {
	stamps := make([][]string, told.Tasks)
	errs := make([]error, told.Tasks)
	var all sync.WaitGroup
	for number := range told.Tasks {
		name := told.Name
		if told.Names == "own" {
			name = fmt.Sprintf("%s %d", told.Name, number)
		}
		take, err := taking(name, number)
		if err != nil {
			return 0, err
		}
		all.Go(func() { stamps[number], errs[number] = work(take, number, told) })
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

func work(take Taker, number int, told *order) (stamps []string, err error) {
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
