package main

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// garbage is how much may gather before it is collected, at least. Go's default collects when there is as much garbage as there is in use: a mesh that
// holds 20 MB would collect ten times a second under load, and spend a tenth of its time on it.
const garbage = 64 << 20

// share is the part of the container's memory that Go's heap and stacks may use: the rest is for the binary and for what the kernel counts.
const share = 0.9

// tuneMemory sets how memory is collected, as far as the operator has not done so with GOGC and GOMEMLIMIT. Without GOMEMLIMIT the container's limit
// counts; without GOGC garbage may gather up to what is in use or 64 MiB, whichever is more.
//
// If nobody can read a profile of memory, none is kept: the runtime would walk the stack for every half megabyte that is allocated, which is for
// every thirtieth small call. A profile that can be read is whole, since the rate is never another one then.
func tuneMemory(profiled bool) {
	if !profiled {
		runtime.MemProfileRate = 0
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := containerLimit(os.DirFS("/")); limit > 0 {
			debug.SetMemoryLimit(int64(share * float64(limit)))
		}
	}
	if os.Getenv("GOGC") == "" {
		newPacer().adapt()
	}
}

// gcPercent is GOGC for what is in use.
func gcPercent(inUse uint64) int {
	const least, most = 100, 400
	return int(max(least, min(garbage*100/max(inUse, 1), most)))
}

// pacer adapts GOGC whenever garbage has been collected: the runtime calls its finalizer when it is found to be garbage itself.
type pacer struct {
	read    [2]metrics.Sample // what is in use, and what is free but still the process's
	percent int
	last    time.Time
}

func newPacer() *pacer {
	return &pacer{read: [2]metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}, last: time.Now()}
}

func (p *pacer) adapt() {
	metrics.Read(p.read[:])
	if now := gcPercent(p.read[0].Value.Uint64()); now != p.percent {
		p.percent = now
		debug.SetGCPercent(now)
	}
	before := p.last
	p.last = time.Now()
	if p.last.Sub(before) >= quiet && p.read[1].Value.Uint64() >= spare {
		go debug.FreeOSMemory() // collects once more, soon after this time
	}
	runtime.SetFinalizer(p, (*pacer).adapt)
}

const (
	// quiet is the time without a collection after which what load has left behind is given back to the system: the runtime itself, which collects every
	// two minutes at least, keeps as much as would let garbage gather again.
	quiet = time.Minute
	// spare is how much there has to be of it.
	spare = 8 << 20
)

// containerLimit is the memory limit of this process's control group in bytes, the lowest on the way to the root, or 0 if there is none: version 2
// (memory.max), else version 1. root is the root of the file system.
func containerLimit(root fs.FS) uint64 {
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	var least uint64
	for line := range strings.Lines(string(own)) {
		// hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers (cgroups(7)).
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var top, file string
		switch {
		case f[0] == "0" && f[1] == "":
			top, file = "sys/fs/cgroup", "memory.max"
		case f[1] == "memory":
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container with a name space of its own for control groups the path may not exist; its root is the container's then.
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			if n := readLimit(root, path.Join(top, dir, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// readLimit is the limit in a file, or 0 if it sets none: version 2 says "max", version 1 a number beyond any memory.
func readLimit(root fs.FS, name string) uint64 {
	const none = 1 << 60
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n >= none {
		return 0
	}
	return n
}
