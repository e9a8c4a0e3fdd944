package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// task is a part of the process that runs until its context ends.
type task struct {
	name string
	// run ends with its context. An error ends the process.
	run func(context.Context) error
	// ready is closed when the task does its work; nil if the start does not wait for
	// it. within, if not zero, is the longest wait.
	ready  <-chan struct{}
	within time.Duration
}

// runTasks runs all tasks and calls ready when those that the start waits for are. It
// returns when all have ended, with the first error.
func runTasks(ctx context.Context, tasks []task, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(tasks)+1)
	for _, t := range tasks {
		go func() {
			err := t.run(ctx)
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", t.name, err)
				cancel()
			}
			ended <- err
		}()
	}
	go func() {
		if waitReady(ctx, tasks) {
			ready()
		}
		ended <- nil
	}()
	var first error
	for range len(tasks) + 1 {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// waitReady waits for the tasks. It reports false if ctx ends before.
func waitReady(ctx context.Context, tasks []task) bool {
	start := time.Now()
	for _, t := range tasks {
		if t.ready == nil {
			continue
		}
		var over <-chan time.Time
		if t.within > 0 {
			over = time.After(time.Until(start.Add(t.within)))
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.ready:
		case <-over:
		}
	}
	return ctx.Err() == nil
}
