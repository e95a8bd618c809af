// redsync or bsm/redislock as a side of the bench; see ../../README.md.
package main

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"tidelock/interop/go-load"
)

const lease = 30 * time.Second

func main() {
	client := goredislib.NewClient(&goredislib.Options{Addr: os.Args[2]})
	if os.Args[1] == "redislock" {
		load.Serve(redislockTaker(client))
	} else {
		load.Serve(redsyncTaker(client))
	}
}

// Its own delays, 50 to 250 ms, but no end of them.
func redsyncTaker(client *goredislib.Client) load.Taking {
	sync := redsync.New(goredis.NewPool(client))
	return func(name string, _ int) (load.Taker, error) {
		lock := sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32))
		return func() (func() error, error) {
			return func() error {
				done, err := lock.Unlock()
				if err == nil && !done {
					err = errors.New("it was lost")
				}
				return err
			}, lock.Lock()
		}, nil
	}
}

// By itself it does not wait at all; this is the pause that its README shows.
func redislockTaker(client *goredislib.Client) load.Taking {
	locks := redislock.New(client)
	forever := context.Background()
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(name string, _ int) (load.Taker, error) {
		return func() (func() error, error) {
			for {
				lock, err := locks.Obtain(forever, name, lease, options)
				// Without a deadline of its own it gives up after one lease.
				if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
					continue
				}
				if err != nil {
					return nil, err
				}
				return func() error { return lock.Release(forever) }, nil
			}
		}, nil
	}
}
