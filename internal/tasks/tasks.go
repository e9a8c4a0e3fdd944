// Package tasks runs the parts of a process that are listed in one place, and says when
// those that its start waits for are ready.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Task is a part of the process that runs until its context ends.
type Task struct {
	Name string
	// Run ends with its context. An error ends the process.
	Run func(context.Context) error
	// Ready is closed when the task does its work; nil if the start does not wait for
	// it. Within, if not zero, is the longest wait.
	Ready  <-chan struct{}
	Within time.Duration
}

// Run runs all tasks and calls ready when those that the start waits for are. It
// returns when all have ended, with the first error.
func Run(ctx context.Context, tasks []Task, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(tasks)+1)
	for _, t := range tasks {
		go func() {
			err := t.Run(ctx)
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", t.Name, err)
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
func waitReady(ctx context.Context, tasks []Task) bool {
	start := time.Now()
	for _, t := range tasks {
		if t.Ready == nil {
			continue
		}
		var over <-chan time.Time
		if t.Within > 0 {
			over = time.After(time.Until(start.Add(t.Within)))
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.Ready:
		case <-over:
		}
	}
	return ctx.Err() == nil
}
