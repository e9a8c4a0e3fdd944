package timeline

import "time"

// clockSpan is how long the best reading of the host's clock is valid: an emulated
// processor's clock runs at a speed of its own.
const clockSpan = 5 * time.Second

// Align removes the readings of the host's clock from the records of one guest and
// puts the others on that clock. Of the readings in each few seconds the fastest
// counts; between two of them the difference changes linearly.
func Align(recs []Record) []Record {
	var looks []Record
	out := make([]Record, 0, len(recs))
	for _, r := range recs {
		n := len(looks)
		switch {
		case r.Trip <= 0:
			out = append(out, r)
		case r.Clock.IsZero(): // its stamp is lost
		case n == 0 || r.At.Sub(looks[n-1].At).Abs() > clockSpan:
			looks = append(looks, r)
		case r.Trip < looks[n-1].Trip:
			looks[n-1] = r
		}
	}
	for i := range out {
		out[i].At = out[i].At.Add(ahead(looks, out[i].At))
	}
	return out
}

// ahead is how far the host's clock is ahead of the guest's at a time of the guest.
func ahead(looks []Record, at time.Time) time.Duration {
	if len(looks) == 0 {
		return 0
	}
	i := 0
	for i < len(looks) && !looks[i].At.After(at) {
		i++
	}
	diff := func(r Record) time.Duration { return r.Clock.Sub(r.At) }
	switch i {
	case 0:
		return diff(looks[0])
	case len(looks):
		return diff(looks[i-1])
	}
	a, b := looks[i-1], looks[i]
	part := float64(at.Sub(a.At)) / float64(b.At.Sub(a.At))
	return diff(a) + time.Duration(part*float64(diff(b)-diff(a)))
}
