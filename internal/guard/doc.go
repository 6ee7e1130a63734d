// Package guard keeps what a process must not give away: the streams that the kubelet reads
// ([ClaimOutput]), arguments with secrets ([HideArgs]), and options that carry credentials ([MaskOptions]).
package guard
