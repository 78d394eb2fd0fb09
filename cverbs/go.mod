module github.com/goroce/roce/cverbs

go 1.26

require github.com/goroce/roce v0.0.0

replace github.com/goroce/roce => ../
