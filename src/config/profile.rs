//! Owns host profiles: KDL text to declared knobs.
//! Does not know how a knob is set (edge/tune does).
