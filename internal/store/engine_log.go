package store

import (
	"fmt"
	"log/slog"
)

// engineLog hands the engine's log on: what it only tells is for debugging.
type engineLog struct{ log *slog.Logger }

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
	l.log.Error("store engine: " + fmt.Sprintf(format, v...))
}

// Debugf is not used: the engine's debugging is off.
func (l *engineLog) Debugf(format string, v ...any) {
	l.log.Debug("store engine: " + fmt.Sprintf(format, v...))
}

// Tracef is not used either.
func (l *engineLog) Tracef(string, ...any) {}
