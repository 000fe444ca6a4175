package object

// Prune keeps of a live tree what the shape names: the keys of its maps and the
// leading elements of its lists. Where the two differ in type the live value
// is kept whole, so that the difference shows.
func Prune(live, shape map[string]any) map[string]any {
	if live == nil || shape == nil {
		return nil
	}
	pruned := make(map[string]any, len(shape))
	for key, shapeValue := range shape {
		if liveValue, found := live[key]; found {
			pruned[key] = pruneValue(liveValue, shapeValue)
		}
	}
	return pruned
}

func pruneValue(live, shape any) any {
	switch live := live.(type) {
	case map[string]any:
		if shape, same := shape.(map[string]any); same {
			return Prune(live, shape)
		}
	case []any:
		if shape, same := shape.([]any); same {
			return pruneList(live, shape)
		}
	}
	return live
}

func pruneList(live, shape []any) []any {
	length := min(len(live), len(shape))
	pruned := make([]any, length)
	for index := range length {
		pruned[index] = pruneValue(live[index], shape[index])
	}
	return pruned
}
