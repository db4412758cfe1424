package incidents

// ParseTraceparent is parseTraceparent, for its fuzz test.
func ParseTraceparent(s string) (id, flags string, ok bool) {
	t, ok := parseTraceparent(s)
	return t.ID, t.Flags, ok
}

// Fit and Clip are fit and clip, for theirs.
var (
	Fit  = fit
	Clip = clip
)
