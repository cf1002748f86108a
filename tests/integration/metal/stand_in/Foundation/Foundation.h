// What the Metal kernel uses of Apple's Foundation, declared after its documentation, so that the
// Objective-C++ source can be compiled (not linked) on any machine.
#pragma once

#include <objc/NSObject.h>

@interface NSString : NSObject
+ (instancetype)stringWithFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
@property(readonly) const char* UTF8String;
@end

@interface NSConstantString : NSString
@end

@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@end
