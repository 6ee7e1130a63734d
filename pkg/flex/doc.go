// Package flex is the FlexVolume protocol: parse a callout, do it, answer.
package flex
