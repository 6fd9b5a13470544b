package main

import (
	"bytes"
	"encoding/json"
	"log"
	"math"
	"math/bits"
	"os"
	"syscall"
	"time"
)

var base = time.Now()

// now is the monotonic clock.
func now() time.Duration { return time.Since(base) }

// cpuTime is that of the whole process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	// It cannot fail for oneself.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func read(file string) []event {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	var events []event
	for line := range bytes.Lines(text) {
		var one event
		if err := json.Unmarshal(line, &one); err != nil {
			log.Fatal(err)
		}
		events = append(events, one)
	}
	return events
}

const kept = 10 * time.Second

// window has the keys of the last ten seconds, and their order.
type window struct {
	seen       map[string]time.Duration
	order      []string
	duplicates int
}

func (w *window) isNew(key string, at time.Duration) bool {
	for len(w.order) > 0 && at-w.seen[w.order[0]] >= kept {
		delete(w.seen, w.order[0])
		w.order = w.order[1:]
	}
	if _, found := w.seen[key]; found {
		w.duplicates++
		return false
	}
	w.seen[key] = at
	w.order = append(w.order, key)
	return true
}

// histogram counts whole microseconds, to three digits, as an HDR histogram does.
type histogram struct {
	counts [24 << 10]int
	count  int
}

func (h *histogram) record(took time.Duration) {
	microseconds := uint32(took.Microseconds())
	shift := max(0, bits.Len32(microseconds)-11)
	h.counts[shift<<10+int(microseconds>>shift)]++
	h.count++
}

func (h *histogram) percentile(share float64) int {
	left, index := int(math.Ceil(float64(h.count)*share)), -1
	for left > 0 {
		index++
		left -= h.counts[index]
	}
	shift := max(0, index>>10-1)
	return (index - shift<<10) << shift
}

func (h *histogram) outcome() map[string]int {
	return map[string]int{"p50": h.percentile(0.5), "p99": h.percentile(0.99)}
}
