package main

import (
	"sync"
	"time"
)

const (
	limit = 64
	half  = 512
)

type stamped struct {
	created time.Duration
	event   event
}

// queue has the events of a client. Its head stays there while it is worked on.
type queue struct {
	client int
	events []stamped
}

// kata is what the workers share, under its mutex.
type kata struct {
	sync.Mutex
	admitted *sync.Cond
	source   []event
	window   window
	queues   map[int]*queue
	ready    []*queue
	waiting  int

	waited, served, total histogram
}

// admit reads half a buffer.
func (k *kata) admit() {
	chunk := k.source[:min(half, len(k.source))]
	k.source = k.source[len(chunk):]
	at := now()
	for _, one := range chunk {
		if !k.window.isNew(one.UUID, at) {
			continue
		}
		of := k.queues[one.ClientID]
		if of == nil {
			of = &queue{client: one.ClientID}
			k.queues[one.ClientID] = of
			k.ready = append(k.ready, of)
		}
		of.events = append(of.events, stamped{at, one})
		k.waiting++
	}
	k.admitted.Broadcast()
}

// next is nil if there will be no more work for another worker.
func (k *kata) next() *queue {
	for {
		if k.waiting <= half && len(k.source) > 0 {
			k.admit()
		}
		if len(k.ready) > 0 {
			first := k.ready[0]
			k.ready = k.ready[1:]
			k.waiting--
			return first
		}
		if len(k.source) == 0 {
			return nil
		}
		k.admitted.Wait()
	}
}

func (k *kata) work(handle func(event) result) {
	k.Lock()
	defer k.Unlock()
	for of := k.next(); of != nil; of = k.next() {
		head := of.events[0]
		k.Unlock()
		started := now()
		handle(head.event)
		ended := now()
		k.Lock()
		k.waited.record(started - head.created)
		k.served.record(ended - started)
		k.total.record(ended - head.created)
		if of.events = of.events[1:]; len(of.events) > 0 {
			k.ready = append(k.ready, of)
		} else {
			delete(k.queues, of.client)
		}
	}
}
