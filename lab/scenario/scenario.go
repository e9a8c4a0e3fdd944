// Package scenario holds the stories that the project promises, each an
// ordinary test on a kernel of its own: what a user writes into a file, what
// happens to the fabric, and what the kernel says afterwards.
package scenario
