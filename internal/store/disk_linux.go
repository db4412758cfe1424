package store

import (
	"os"
	"syscall"
)

// free returns how many bytes the disk of a directory takes; false if it does not say.
func free(dir string) (uint64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 || st.Bsize <= 0 {
		return 0, false
	}
	blocks := st.Bavail
	if os.Geteuid() == 0 { // what is reserved is root's
		blocks = st.Bfree
	}
	return blocks * uint64(st.Bsize), true //nolint:gosec // positive
}
