package bench

import (
	"math"
	"math/rand/v2"
)

// Which key a command asks for. Popular keys are spread over the whole key space, so that they share neither a
// block of the store nor a slot because of their popularity.

// Dist names a distribution of keys.
type Dist string

// The distributions.
const (
	Uniform Dist = "uniform"
	Zipf    Dist = "zipf"   // exponent 1.1: the most popular of a million has a tenth of all
	YCSB    Dist = "ycsb"   // YCSB's own, exponent 0.99
	Latest  Dist = "latest" // YCSB's D: what was written last is asked for most
)

// zipfExponent is the one of rows named zipf.
const zipfExponent = 1.1

// picker returns the number of a key in [0, n).
type picker func() uint64

// newPicker makes one for n keys. What it returns depends on rng alone.
func newPicker(d Dist, n uint64, rng *rand.Rand) picker {
	switch d {
	case Zipf:
		z, p := rand.NewZipf(rng, zipfExponent, 1, n-1), newPermutation(n)
		return func() uint64 { return p.at(z.Uint64()) }
	case YCSB:
		z, p := newYCSBZipf(n), newPermutation(n)
		return func() uint64 { return p.at(z.rank(rng.Float64())) }
	case Latest:
		z := newYCSBZipf(n)
		return func() uint64 { return z.rank(rng.Float64()) } // counted back from the newest by the caller
	default:
		return func() uint64 { return rng.Uint64N(n) }
	}
}

// permutation maps [0, n) onto itself, neighbours far apart.
type permutation struct{ n, factor uint64 }

// newPermutation is for n below 2^32, so that products fit.
func newPermutation(n uint64) permutation {
	factor := max(1, uint64(float64(n)*0.6180339887)) // the golden section spreads best
	for gcd(factor, n) != 1 {
		factor++
	}
	return permutation{n, factor}
}

func (p permutation) at(i uint64) uint64 { return i * p.factor % p.n }

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ycsbTheta is the exponent that YCSB fixes.
const ycsbTheta = 0.99

// ycsbZipf draws ranks as YCSB does: Gray and others, "Quickly generating billion-record synthetic databases",
// SIGMOD 1994, section 3.2. math/rand/v2 has none for exponents up to 1.
type ycsbZipf struct {
	n                        float64
	alpha, zetan, eta, half2 float64
}

func newYCSBZipf(n uint64) ycsbZipf {
	zeta := func(n uint64) (sum float64) {
		for i := uint64(1); i <= n; i++ {
			sum += math.Pow(float64(i), -ycsbTheta)
		}
		return sum
	}
	z := ycsbZipf{n: float64(n), alpha: 1 / (1 - ycsbTheta), zetan: zeta(n), half2: 1 + math.Pow(0.5, ycsbTheta)}
	z.eta = (1 - math.Pow(2/z.n, 1-ycsbTheta)) / (1 - zeta(2)/z.zetan)
	return z
}

// rank turns u in [0, 1) into a rank in [0, n), 0 the most popular.
func (z ycsbZipf) rank(u float64) uint64 {
	uz := u * z.zetan
	switch {
	case uz < 1 || z.n < 2:
		return 0
	case uz < z.half2 || z.n < 3:
		return 1
	}
	return min(uint64(z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)), uint64(z.n)-1)
}
