package main

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// socketRetry is the pause after the status socket could not be made, or failed.
const socketRetry = time.Minute

// statusSocket is the socket of the other commands, which the subnets do not depend on.
type statusSocket struct {
	path   string // "" for none
	listen func(path string) (net.Listener, error)
	serve  func(context.Context, net.Listener) error
	log    *slog.Logger
	tried  chan struct{} // closed when it was made, or could not be
}

// run serves until ctx ends. It returns no error, which would end the subnet manager: it logs
// and retries.
func (s *statusSocket) run(ctx context.Context) error {
	if s.path == "" {
		close(s.tried)
		return nil
	}
	l, err := s.listen(s.path)
	close(s.tried)
	for logged := ""; ; l, err = s.listen(s.path) {
		if err == nil {
			err = s.serve(ctx, l)
			_ = l.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			s.log.Warn("no status socket; will retry each minute", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(socketRetry):
		}
	}
}
