// The kata in Go, by hand:
//
//	kata by_hand (plain | yielding) FILE LATER
//
// FILE is of `python -m benchmarks.workload`; it is read anew before each of the 1 + LATER runs. All
// goroutines share one processor, as all tasks do in Python.
package main

import (
	"encoding/json"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

type event struct {
	UUID     string `json:"uuid"`
	ClientID int    `json:"client_id"`
}

type result struct {
	uuid     string
	clientID int
}

func project(one event) result { return result{one.UUID, one.ClientID} }

func yielding(one event) result {
	runtime.Gosched()
	return project(one)
}

func run(handle func(event) result, file string) map[string]any {
	events := read(file)
	k := kata{source: events, queues: map[int]*queue{}, window: window{seen: map[string]time.Duration{}}}
	k.admitted = sync.NewCond(&k)
	var workers sync.WaitGroup
	runtime.GC()
	wall, cpu := now(), cpuTime()
	for range limit {
		workers.Go(func() { k.work(handle) })
	}
	workers.Wait()
	return map[string]any{
		"cpu_seconds":  (cpuTime() - cpu).Seconds(),
		"wall_seconds": (now() - wall).Seconds(),
		"events":       len(events),
		"finished":     k.total.count,
		"duplicates":   k.window.duplicates,
		"waiting":      k.waited.outcome(),
		"service":      k.served.outcome(),
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	handle := map[string]func(event) result{"plain": project, "yielding": yielding}[os.Args[2]]
	rounds, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	first, later := run(handle, os.Args[3]), make([]any, rounds)
	for round := range later {
		later[round] = run(handle, os.Args[3])["cpu_seconds"]
	}
	first["later"] = later
	if err := json.NewEncoder(os.Stdout).Encode(first); err != nil {
		log.Fatal(err)
	}
}
