package store

import (
	"fmt"
	"log/slog"
	"strings"
)

// engineLog hands the engine's log on: what it only tells is for debugging. The engine says in its log alone that a stream has given up writing,
// which it does for good when the disk fails it once, and answers requests for that stream no more.
type engineLog struct {
	log *slog.Logger
	// gaveUp is told why.
	gaveUp func(why string)
}

// givesUp is in what the engine logs when a stream gives up (nats-server, server/stream.go and server/filestore.go); a test fills a disk to see.
const givesUp = "ritical write error: "

// Noticef is told at every start and stop.
func (l *engineLog) Noticef(format string, v ...any) {
	l.log.Debug("store engine: " + fmt.Sprintf(format, v...))
}

// Warnf warns.
func (l *engineLog) Warnf(format string, v ...any) {
	l.log.Warn("store engine: " + fmt.Sprintf(format, v...))
}

// Fatalf does not end the program: the store says that it is not available.
func (l *engineLog) Fatalf(format string, v ...any) {
	l.log.Error("store engine: " + fmt.Sprintf(format, v...))
}

// Errorf is an error.
func (l *engineLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("store engine: " + text)
	if _, why, ok := strings.Cut(text, givesUp); ok {
		l.gaveUp(why)
	}
}

// Debugf is not used: the engine's debugging is off.
func (l *engineLog) Debugf(format string, v ...any) {
	l.log.Debug("store engine: " + fmt.Sprintf(format, v...))
}

// Tracef is not used either.
func (l *engineLog) Tracef(string, ...any) {}
