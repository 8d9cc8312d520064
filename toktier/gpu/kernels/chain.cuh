// The kernels, in the order in which a request runs through them; `toktier.gpu.encoder` has the chain.
//
//   documents_begin, mark        kinds of characters, the certified cuts, and what has to be looked at
//   stretches, measure, scan_widths, rewrite, place, index
//                                only where normalizers rewrite the text
//   divide                       each segment to pieces, a thread a segment
//   encode                       each piece to ids, a thread a piece; long ones are put on lists
//   encode_medium, encode_long   those, a warp a piece
//   weigh, scan_weights, count, gather, patch
//                                the ids of all slots, one after the other
#include "marking.cuh"
#include "rewriting.cuh"
#include "dividing.cuh"
#include "pieces.cuh"
#include "gathering.cuh"
