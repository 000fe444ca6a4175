// Package change compares what a program wants with what the cluster was last
// seen to have, and says property by property what differs and whether the
// difference forces a replacement. It is pure.
package change
