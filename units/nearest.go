package units

import "strings"

// Nearest is the candidate that s was probably meant to be, "" for no guess: one with
// few other letters, or one that begins with s or with which s begins.
func Nearest(s string, candidates []string) string { return nearest(s, candidates) }

// nearest finds the candidate that s was probably meant to be: the same letters
// in another case, or at most two edits (a swap counts as one) and not more than
// a third of the word, else one that begins with it or with which it begins. Ties
// go to the first candidate. "" is no guess.
func nearest(s string, candidates []string) string {
	if len(s) == 0 || len(s) > 64 {
		return ""
	}
	best, bestCost := "", 3
	low := strings.ToLower(s)
	for _, c := range candidates {
		if strings.EqualFold(c, s) {
			return c
		}
		most := min(2, max(1, len(c)/3))
		if d := editDistance(low, strings.ToLower(c), most); d <= most && d < bestCost {
			best, bestCost = c, d
		}
	}
	if best != "" || len(s) < 3 {
		return best
	}
	// Cut short (MTU), or with a word too many (PartitionKeys).
	for _, c := range candidates {
		if l := strings.ToLower(c); strings.HasPrefix(l, low) || len(l) >= 4 && strings.HasPrefix(low, l) {
			return c
		}
	}
	return ""
}

// editDistance is the optimal string alignment distance of a and b in bytes, or
// most+1 where it is larger than most.
func editDistance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1
	}
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return min(prev[len(b)], most+1)
}
