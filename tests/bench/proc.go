package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one that is measured from outside.
type process struct {
	pid int
	// admin is where /metrics is, with the figures of Go's runtime; empty for programs that are not Go.
	admin string
}

// usage is what a process has used so far.
type usage struct {
	cpu                   time.Duration
	allocs, allocatedByte float64
}

// usage reads what p and its children have used. Processor time comes in hundredths of a second.
func (p process) usage(ctx context.Context) (usage, error) {
	var u usage
	pids, err := family(p.pid)
	if err != nil {
		return u, err
	}
	for _, pid := range pids {
		cpu, err := processor(pid)
		if err != nil {
			return u, err
		}
		u.cpu += cpu
	}
	if p.admin != "" {
		u.allocs, u.allocatedByte, err = heap(ctx, p.admin)
	}
	return u, err
}

// family is a process and its children.
func family(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("children of a process on %s: %w", runtime.GOOS, err)
	}
	all := []int{pid}
	for s := range strings.FieldsSeq(string(b)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// heap reads how many objects and bytes a Go process has allocated since its start.
func heap(ctx context.Context, admin string) (objects, bytes float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	found := 0
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		to := map[string]*float64{"go_memstats_mallocs_total": &objects, "go_memstats_alloc_bytes_total": &bytes}[name]
		if to == nil {
			continue
		}
		if *to, err = strconv.ParseFloat(value, 64); err != nil {
			return 0, 0, fmt.Errorf("%s of %s: %w", name, admin, err)
		}
		found++
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("/metrics of %s: %s, without go_memstats_mallocs_total and go_memstats_alloc_bytes_total", admin, resp.Status)
	}
	return objects, bytes, nil
}

// resident is the resident memory of a process in MB, of 10^6 bytes.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory on %s: %w", runtime.GOOS, err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
}

// processor is the processor time that a process has used.
func processor(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time on %s: %w", runtime.GOOS, err)
	}
	// Fields are counted after the command's name, which may hold spaces: utime and stime are the 12th and 13th, in hundredths.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// ownCPU is the processor time that this process has used.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("processor time of this process: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
