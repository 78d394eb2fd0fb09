package suite

var deviceTests, readWriteTests, atomicTests, errorTests, datagramTests, ucTests, stateTests []Test
