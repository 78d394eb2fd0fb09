//go:build !purego

#include "textflag.h"

// Constants of the reflected polynomial; clmul_amd64_test.go computes them.
DATA folds<>+0(SB)/8, $0x1751997d0  // x^(128+32) mod P, for the first eight bytes of a block
DATA folds<>+8(SB)/8, $0x0ccaa009e  // x^(128-32) mod P, for the others
GLOBL folds<>(SB), RODATA|NOPTR, $16

DATA last<>+0(SB)/8, $0x163cd6124  // x^64 mod P
DATA last<>+8(SB)/8, $0xffffffff
GLOBL last<>(SB), RODATA|NOPTR, $16

DATA barrett<>+0(SB)/8, $0x1db710641  // P
DATA barrett<>+8(SB)/8, $0x1f7011641  // floor(x^64 / P)
GLOBL barrett<>(SB), RODATA|NOPTR, $16

// The 16 bytes from offset r on are an argument of PSHUFB: it moves the first r bytes of a
// block to its end, and puts zeros before them.
DATA shifts<>+0(SB)/8, $0x8080808080808080
DATA shifts<>+8(SB)/8, $0x8080808080808080
DATA shifts<>+16(SB)/8, $0x0706050403020100
DATA shifts<>+24(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL shifts<>(SB), RODATA|NOPTR, $32

// The bytes of a block with a BTH at its beginning that the CRC takes as ones: byte 4.
DATA ones<>+0(SB)/8, $0x000000ff00000000
DATA ones<>+8(SB)/8, $0
GLOBL ones<>(SB), RODATA|NOPTR, $16

// BEGIN loads the first block of a packet at p, sets the bits of ones in it, and adds the
// register c. The result is acc.
#define BEGIN(c, p, acc, t, ones) \
	MOVOU (p), acc  \
	POR   ones, acc \
	MOVL  c, t      \
	PXOR  t, acc

// FOLD advances a register of 128 bits by a block of 16 bytes. t is a scratch register.
#define FOLD(acc, t, folds, block) \
	MOVO      acc, t            \
	PCLMULQDQ $0x00, folds, acc \
	PCLMULQDQ $0x11, folds, t   \
	PXOR      block, acc        \
	PXOR      t, acc

// REDUCE reduces a register of 128 bits to 32 bits in three steps: to 96 bits, including the 32 zeros
// that a CRC appends to a string, to 64, and to 32 by Barrett's method. low is a mask of
// the first 32 bits.
#define REDUCE(acc, t, folds, last, low, barrett) \
	MOVO      acc, t              \
	PSRLDQ    $8, t               \
	PCLMULQDQ $0x10, folds, acc   \
	PXOR      t, acc              \
	MOVO      acc, t              \
	PSRLDQ    $4, t               \
	PAND      low, acc            \
	PCLMULQDQ $0x00, last, acc    \
	PXOR      t, acc              \
	MOVO      acc, t              \
	PAND      low, acc            \
	PCLMULQDQ $0x10, barrett, acc \
	PAND      low, acc            \
	PCLMULQDQ $0x00, barrett, acc \
	PXOR      t, acc              \
	PSRLQ     $32, acc

// func clmulBTH(c CRC, p *byte, n int) CRC
TEXT ·clmulBTH(SB), NOSPLIT, $0-28
	MOVOU ones<>(SB), X5
	JMP   update<>(SB)

// func clmul(c CRC, p *byte, n int) CRC
TEXT ·clmul(SB), NOSPLIT, $0-28
	PXOR X5, X5
	JMP  update<>(SB)

// update is the common part of clmul and clmulBTH. X5 has the bits of the first block that count as ones.
//
// Zeros before a string do not change its CRC if the register begins with zero. So if the
// length is not a multiple of 16, update puts zeros before the first bytes to fill a block.
// The register is added to the first four bytes of the string before that.
TEXT update<>(SB), NOSPLIT, $0-28
	MOVQ  p+8(FP), SI
	MOVQ  n+16(FP), CX
	BEGIN(c+0(FP), SI, X1, X0, X5)
	MOVOU folds<>(SB), X3
	MOVQ  CX, DX
	ANDQ  $15, DX
	JZ    whole
	LEAQ  shifts<>(SB), BX
	MOVOU (BX)(DX*1), X2
	PSHUFB X2, X1
	ADDQ  DX, SI
	SUBQ  DX, CX

fold:
	MOVOU (SI), X4
	FOLD(X1, X2, X3, X4)

whole:
	ADDQ $16, SI
	SUBQ $16, CX
	JNZ  fold

	MOVOU   last<>(SB), X4
	MOVOU   barrett<>(SB), X6
	MOVO    X4, X5
	PSRLDQ  $8, X5
	REDUCE(X1, X2, X3, X4, X5, X6)
	MOVL    X1, AX
	MOVL    AX, ret+24(FP)
	RET

// func clmulBTH4(c *[4]CRC, b *[4][]byte, n int)
//
// It does the work of clmulBTH for four packets at once: X0 to X3 are the four registers, AX is the
// number of bytes that they contain.
TEXT ·clmulBTH4(SB), NOSPLIT, $0-24
	MOVQ  c+0(FP), DI
	MOVQ  b+8(FP), SI
	MOVQ  n+16(FP), CX
	MOVQ  0(SI), R8
	MOVQ  24(SI), R9
	MOVQ  48(SI), R10
	MOVQ  72(SI), R11
	MOVOU ones<>(SB), X9
	MOVOU folds<>(SB), X8
	BEGIN(0(DI), R8, X0, X4, X9)
	BEGIN(4(DI), R9, X1, X5, X9)
	BEGIN(8(DI), R10, X2, X6, X9)
	BEGIN(12(DI), R11, X3, X7, X9)
	MOVQ  $16, AX
	MOVQ  CX, DX
	ANDQ  $15, DX
	JZ    more4
	LEAQ  shifts<>(SB), BX
	MOVOU (BX)(DX*1), X9
	PSHUFB X9, X0
	PSHUFB X9, X1
	PSHUFB X9, X2
	PSHUFB X9, X3
	MOVQ  DX, AX
	JMP   more4

fold4:
	MOVOU (R8)(AX*1), X9
	MOVOU (R9)(AX*1), X10
	MOVOU (R10)(AX*1), X11
	MOVOU (R11)(AX*1), X12
	FOLD(X0, X4, X8, X9)
	FOLD(X1, X5, X8, X10)
	FOLD(X2, X6, X8, X11)
	FOLD(X3, X7, X8, X12)
	ADDQ  $16, AX

more4:
	CMPQ AX, CX
	JLT  fold4

	MOVOU  last<>(SB), X9
	MOVOU  barrett<>(SB), X11
	MOVO   X9, X10
	PSRLDQ $8, X10
	REDUCE(X0, X4, X8, X9, X10, X11)
	REDUCE(X1, X5, X8, X9, X10, X11)
	REDUCE(X2, X6, X8, X9, X10, X11)
	REDUCE(X3, X7, X8, X9, X10, X11)
	MOVL   X0, 0(DI)
	MOVL   X1, 4(DI)
	MOVL   X2, 8(DI)
	MOVL   X3, 12(DI)
	RET

// func features() uint32
TEXT ·features(SB), NOSPLIT, $0-4
	MOVL $1, AX
	XORL CX, CX
	CPUID
	MOVL CX, ret+0(FP)
	RET
