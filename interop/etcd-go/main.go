// The Mutex of etcd's own Go package concurrency as a side of the bench; see ../README.md.
package main

import (
	"context"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"tidelock/interop/go-load"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		panic(err)
	}
	load.Serve(takers(client))
}

// A session owns a mutex, so each task has one of its own, which it keeps for the next run.
func takers(client *clientv3.Client) load.Taking {
	var sessions []*concurrency.Session
	forever := context.Background()
	return func(name string, number int) (load.Taker, error) {
		for len(sessions) <= number {
			session, err := concurrency.NewSession(client)
			if err != nil {
				return nil, err
			}
			sessions = append(sessions, session)
		}
		mutex := concurrency.NewMutex(sessions[number], "/bench/"+name)
		return func() (func() error, error) {
			return func() error { return mutex.Unlock(forever) }, mutex.Lock(forever)
		}, nil
	}
}
