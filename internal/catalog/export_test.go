package catalog

// Decode loads a descriptor set in any form.
func Decode(data []byte) (*Snapshot, error) {
	d, err := decode(data)
	if err != nil {
		return nil, err
	}
	return snapshotOf(d.raws)
}

// LoadFiles loads file descriptors.
func LoadFiles(files ...[]byte) (*Snapshot, error) {
	var raws []rawFile
	for _, f := range files {
		raws = append(raws, rawFile{data: f})
	}
	return snapshotOf(raws)
}

func snapshotOf(raws []rawFile) (*Snapshot, error) {
	c, err := load(raws, loadOptions{})
	if err != nil {
		return nil, err
	}
	return build(nil, []input{{name: "x", analysis: analyse(c, ""), findings: c.findings}}), nil
}
