package com.example;

import org.apache.spark.sql.api.java.UDF1;

/** An address of e-mail without the person; what is none has no mask. */
public class Mask implements UDF1<String, String> {
  @Override
  public String call(String address) {
    if (address == null) {
      return null;
    }
    int at = address.indexOf('@');
    if (at < 0) {
      throw new IllegalArgumentException("not an address: " + address);
    }
    return "***" + address.substring(at);
  }
}
