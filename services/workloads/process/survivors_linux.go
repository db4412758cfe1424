package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollEvery is how often a process is asked for that is not our child, whose end nobody tells us.
const pollEvery = 50 * time.Millisecond

// survivors finds the processes that have the owner's marker in their environment (proc(5)). Those of other people, which cannot be read, are none.
func survivors(owner string) ([]survivor, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []survivor
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // gone, or not ours
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			value, ok := bytes.CutPrefix(entry, []byte(marker+"="))
			if !ok {
				continue
			}
			s, ok := parseMark(string(value), owner)
			if !ok {
				continue
			}
			var state byte
			if s.identity, s.group, s.started, state, err = stat(pid); err != nil || state == 'Z' || state == 'X' {
				continue
			}
			s.pid, s.leader = pid, s.group == pid
			found = append(found, s)
		}
	}
	return found, nil
}

// stat reads /proc/PID/stat: the start time, which tells the process from a later one with its pid, its group and its state.
func stat(pid int) (identity string, group int, started time.Time, state byte, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, time.Time{}, 0, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return "", 0, time.Time{}, 0, errors.New("stat is short")
	}
	if group, err = strconv.Atoi(fields[2]); err != nil {
		return "", 0, time.Time{}, 0, err
	}
	started = time.Now()
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		started = info.ModTime()
	}
	return fields[19], group, started, fields[0][0], nil
}

// follow is the survivor as a child; its end is seen by asking.
func (f *survivor) follow() *child {
	c := &child{pid: f.pid, done: make(chan struct{}), how: "ended; how is not known, as an earlier service had started it"}
	go func() {
		defer close(c.done)
		for {
			identity, _, _, state, err := stat(f.pid)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || err == nil && (identity != f.identity || state == 'Z' || state == 'X') {
				return
			}
			time.Sleep(pollEvery)
		}
	}()
	return c
}
