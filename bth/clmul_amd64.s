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

// From offset r on: what moves the first r bytes of a block to its end, and zeros before
// them.
DATA shifts<>+0(SB)/8, $0x8080808080808080
DATA shifts<>+8(SB)/8, $0x8080808080808080
DATA shifts<>+16(SB)/8, $0x0706050403020100
DATA shifts<>+24(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL shifts<>(SB), RODATA|NOPTR, $32

// What of a block that begins with a BTH counts as ones.
DATA ones<>+0(SB)/8, $0x000000ff00000000
DATA ones<>+8(SB)/8, $0
GLOBL ones<>(SB), RODATA|NOPTR, $16

// func clmulBTH(c CRC, p *byte, n int) CRC
TEXT ·clmulBTH(SB), NOSPLIT, $0-28
	MOVOU ones<>(SB), X5
	JMP   update<>(SB)

// func clmul(c CRC, p *byte, n int) CRC
TEXT ·clmul(SB), NOSPLIT, $0-28
	PXOR X5, X5
	JMP  update<>(SB)

// update is both of them; X5 is what counts as ones of the first block.
//
// Zeros before a string change nothing of what it adds to a register of zero, so a first
// piece of less than 16 bytes is a block with zeros before it. The register is added to
// the first four bytes.
TEXT update<>(SB), NOSPLIT, $0-28
	MOVL  c+0(FP), AX
	MOVQ  p+8(FP), SI
	MOVQ  n+16(FP), CX
	MOVOU (SI), X1
	POR   X5, X1
	MOVL  AX, X0
	PXOR  X0, X1
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
	MOVOU     (SI), X4
	MOVO      X1, X2
	PCLMULQDQ $0x00, X3, X1
	PCLMULQDQ $0x11, X3, X2
	PXOR      X4, X1
	PXOR      X2, X1

whole:
	ADDQ $16, SI
	SUBQ $16, CX
	JNZ  fold

	// 128 bits to 96, with the 32 zeros that a CRC puts behind a string, and to 64.
	MOVO      X1, X2
	PSRLDQ    $8, X2
	PCLMULQDQ $0x10, X3, X1
	PXOR      X2, X1
	MOVOU     last<>(SB), X4
	MOVO      X4, X5
	PSRLDQ    $8, X5
	MOVO      X1, X2
	PSRLDQ    $4, X2
	PAND      X5, X1
	PCLMULQDQ $0x00, X4, X1
	PXOR      X2, X1

	// 64 bits to 32 (Barrett).
	MOVOU     barrett<>(SB), X4
	MOVO      X1, X2
	PAND      X5, X1
	PCLMULQDQ $0x10, X4, X1
	PAND      X5, X1
	PCLMULQDQ $0x00, X4, X1
	PXOR      X2, X1
	PSRLQ     $32, X1
	MOVL      X1, AX
	MOVL      AX, ret+24(FP)
	RET

// func features() uint32
TEXT ·features(SB), NOSPLIT, $0-4
	MOVL $1, AX
	XORL CX, CX
	CPUID
	MOVL CX, ret+0(FP)
	RET
